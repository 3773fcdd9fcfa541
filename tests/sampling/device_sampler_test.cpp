// SPDX-License-Identifier: Apache-2.0
//
// Batches that kernels sample are those of the host, to the bit: every sampler and weight of edges, on all blocks of every grid, for graphs
// of all kinds.
#include "models/gnn/batches/device_sampler.hpp"

#include "sampling/vertex_sampler.hpp"
#include "whole_blocks.hpp"

namespace orthant::testing {
namespace {

using models::DeviceBatch;
using models::DeviceSampler;
using sampling::BatchEdges;
using sampling::Sampler;

/// Half of all edges are at vertex 7.
std::string edges_of_hub() {
  std::string text;
  for (std::int64_t e = 0; e < 300; ++e)
    text +=
        std::to_string(e % 2 == 0 ? 7 : mixed(4, e) % 320) + ' ' + std::to_string(mixed(5, e) % 320) + " 1\n";
  return text;
}
/// Most vertices have no edge; some edges have weights that no float represents.
std::string edges_of_few() {
  std::string text;
  for (std::int64_t e = 0; e < 40; ++e)
    text += std::to_string(3 * (mixed(6, e) % 20)) + ' ' + std::to_string(5 * (mixed(7, e) % 12)) + " 0." +
            std::to_string(1 + mixed(8, e) % 9) + '\n';
  return text;
}

std::vector<StoreRecipe> recipes() {
  auto all = store_recipes();
  all.push_back({"hub", ""});
  all.back().edges = edges_of_hub;
  all.back().num_vertices = 320;
  all.push_back({"few", ""});
  all.back().edges = edges_of_few;
  all.back().num_vertices = 130;
  all.push_back({"one_range_of_words", "rmat:vertices=4096,edges=30000,classes=3,features=4"});
  for (auto& recipe : all)
    recipe.num_clusters = 9;
  return all;
}

/// Elements of a device array, with a host array of the same.
template<class View, class Numbers>
void expect_equal(View const& found, Numbers const& expected, char const* what) {
  auto const on_host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), found);
  ASSERT_EQ(on_host.extent(0), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(on_host(i), expected[i]) << what << ", " << i;
}

void expect_equal(pmm::SparseBlock<double> const& found, SampledBlock<double> const& expected) {
  ASSERT_EQ(found.csr.num_rows, expected.num_rows);
  ASSERT_EQ(found.csr.num_columns, expected.num_columns);
  expect_equal(found.csr.row_offsets, expected.row_offsets, "offsets");
  expect_equal(found.csr.columns, expected.columns, "columns");
  expect_equal(found.csr.values, expected.values, "values");
  if (expected.num_rows == 0) return;
  expect_equal(found.row_scale, expected.row_scale, "scales of rows");
  expect_equal(found.column_scale, expected.column_scale, "scales of columns");
  expect_equal(found.row_groups, expected.row_groups, "groups");
  expect_equal(found.self_columns, expected.self_columns, "self loops");
  expect_equal(found.self_scale, expected.self_scale, "scales of self loops");
}

void expect_equal(DeviceBatch<double> const& found, Batch<double> const& expected) {
  EXPECT_EQ(found.keys.size(), expected.keys.size());
  ASSERT_EQ(found.vertices.size(), expected.vertices.size());
  for (std::size_t r = 0; r < expected.vertices.size(); ++r) {
    SCOPED_TRACE("range " + std::to_string(r));
    expect_equal(found.vertices[r].positions, expected.vertices[r].positions, "positions");
    expect_equal(found.vertices[r].groups, expected.vertices[r].strata, "groups");
    expect_equal(found.vertices[r].original_ids, expected.vertices[r].original_ids, "ids");
    expect_equal(found.vertices[r].other_positions, expected.vertices[r].other_positions, "other positions");
  }
  ASSERT_EQ(found.blocks.size(), expected.blocks.size());
  for (std::size_t b = 0; b < expected.blocks.size(); ++b) {
    SCOPED_TRACE("block " + std::to_string(b));
    expect_equal(found.blocks[b].forward, expected.blocks[b].block);
    expect_equal(found.blocks[b].adjoint, expected.blocks[b].transposed);
  }
}

class DeviceSamplerOnGrids : public GridBlocks {
 protected:
  [[nodiscard]] std::int64_t num_groups() const { return grid_.size(pmm::Axis::data); }

  /// Blocks of all pairs of axes and parities, and one of lists of ranges.
  void add_blocks(BatchBuilder<double>& builder, std::int64_t n) const {
    for (auto const& [r, c] : axis_pairs())
      for (auto const parity : {Parity::even, Parity::odd}) {
        auto const block = pmm::block_of(grid_, {{r, c}, {n, n}});
        builder.add_block(parity, block.rows, block.columns);
        builder.add_other_positions(builder.add_range(graph::row_order(parity), block.rows));
      }
    builder.add_block({{0, n / 5}, {n / 2, n}}, {{n / 4, n / 3}, {2 * n / 3, n}});
  }

  void check(graph::GraphStore const& store, Sampler const& sampler, BatchEdges edges) {
    BatchBuilder<double> builder(world_, store, sampler, edges);
    add_blocks(builder, store.facts().num_vertices);
    DeviceSampler<double> device({}, builder);
    clear_ledgers(grid_);
    world_.ledger().clear();
    self_.ledger().clear();
    std::vector<std::pair<std::int64_t, std::int64_t>> batches; // epoch, index
    for (std::int64_t epoch = 1; epoch <= 2; ++epoch)
      for (std::int64_t step = 0; step < std::min<std::int64_t>(3, sampler.num_steps()); ++step)
        batches.emplace_back(epoch, sampler.batch_of(step, grid_.coordinate(pmm::Axis::data)));
    Batch<double> expected;
    device.start(3, batches.front().second); // nobody takes this one
    device.start(batches.front().first, batches.front().second);
    for (std::size_t b = 0; b < batches.size(); ++b) {
      auto const [epoch, index] = batches[b];
      SCOPED_TRACE("batch " + std::to_string(index) + " of epoch " + std::to_string(epoch));
      auto const& found = device.finish();
      if (b + 1 < batches.size()) device.start(batches[b + 1].first, batches[b + 1].second);
      builder.build(epoch, index, expected);
      EXPECT_EQ(found.index, index);
      expect_equal(found, expected);
    }
    expect_nothing_sent();
  }
};

TEST_P(DeviceSamplerOnGrids, SamplesTheBatchesOfTheHost) {
  for (auto const& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    auto const store = make_store(self_, recipe);
    auto const& facts = store.facts();
    auto const n = facts.num_vertices;
    auto const num_train = facts.split_sizes[0];
    std::vector<BatchEdges> all_edges{BatchEdges::rescale};
    if (facts.normalization != graph::Normalization::none) all_edges.push_back(BatchEdges::renormalize);
    for (auto const edges : all_edges) {
      SCOPED_TRACE(edges == BatchEdges::rescale ? "rescale" : "renormalize");
      check(store,
            sampling::VertexSampler(
                {5, std::max<std::int64_t>(3, n / 3 / num_groups()), num_groups(), 1, std::nullopt}, n,
                num_train),
            edges);
      if (num_groups() == 1) {
        check(store, sampling::VertexSampler({5, n, 1, 1, std::nullopt}, n, num_train),
              edges); // all vertices
        check(store, sampling::VertexSampler({6, n / 4, 1, 1, 0.4}, n, num_train), edges);
        auto const sizes = sampling::count_strata(world_, store, {sampling::Strata::By::cluster, {}}, 9);
        check(store, sampling::ClusterSampler({7, n / 3, 1, 1, edges}, sizes, num_train), edges);
      }
      check(store,
            sampling::DegreeSampler({8, std::max<std::int64_t>(4, n / 2 / num_groups()), num_groups(), 1},
                                    sampling::count_degrees(world_, store), num_train),
            edges);
    }
  }
}

std::int64_t num_allocations = 0;
void count_allocation(Kokkos::Profiling::SpaceHandle, char const*, void const*, std::uint64_t) {
  ++num_allocations;
}

/// The members of one cluster keep nearly all of their edges, more than the capacities allow at first.
TEST_P(DeviceSamplerOnGrids, SamplesLargeBatchesAgain) {
  if (num_groups() > 1) return;
  auto recipe = recipes().front();
  recipe.dataset = "sbm:vertices=900,edges=9000,classes=9,features=4,homophily=0.98";
  auto const store = make_store(self_, recipe);
  auto const n = store.facts().num_vertices;
  auto const sizes = sampling::count_strata(world_, store, {sampling::Strata::By::cluster, {}}, 9);
  sampling::ClusterSampler const sampler({7, n / 9, 1, 1, BatchEdges::renormalize}, sizes,
                                         store.facts().split_sizes[0]);
  BatchBuilder<double> builder(world_, store, sampler, BatchEdges::renormalize);
  add_blocks(builder, n);
  DeviceSampler<double> device({}, builder);
  Batch<double> expected;
  std::int64_t num_repeats = 0;
  for (std::int64_t epoch = 1; epoch <= 3; ++epoch) {
    num_repeats = device.num_repeats();
    for (std::int64_t index = 0; index < sampler.num_batches(); ++index) {
      num_allocations = 0;
      Kokkos::Tools::Experimental::set_allocate_data_callback(count_allocation);
      device.start(epoch, index);
      auto const& found = device.finish();
      Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
      if (epoch == 3) {
        EXPECT_EQ(num_allocations, 0) << "batch " << index;
      }
      builder.build(epoch, index, expected);
      expect_equal(found, expected);
    }
  }
  EXPECT_GT(runtime::all_reduced(world_, num_repeats, runtime::Reduction::max), 0);
  EXPECT_EQ(device.num_repeats(), num_repeats); // an epoch has the same clusters as the one before
}

INSTANTIATE_TEST_SUITE_P(Grids, DeviceSamplerOnGrids, ::testing::ValuesIn(grids_4d(world_size())),
                         GridName{});

} // namespace
} // namespace orthant::testing
