// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a batch, put together over a grid, are the subgraph of the definition; and making them sends
// nothing.
#include "sampling/batch_builder.hpp"

#include "pmm/grid/layout.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/numbers/random.hpp"
#include "sampling/vertex_sampler.hpp"
#include "sampling_fixture.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <optional>

namespace orthant::testing {
namespace {

using graph::Order;
using graph::Parity;
using sampling::Batch;
using sampling::BatchBuilder;
using sampling::BlockHandle;
using sampling::SampledBlock;
using sampling::SampledVertices;
using sampling::VertexSampler;

/// Adds the entries of a block where they belong by original ids.
void add_entries(SampledBlock<double> const& block, SampledVertices const& rows,
                 SampledVertices const& columns, Dense& whole) {
  ASSERT_EQ(block.num_rows, static_cast<std::int64_t>(rows.size()));
  ASSERT_EQ(block.num_columns, static_cast<std::int64_t>(columns.size()));
  ASSERT_EQ(block.row_offsets.size(), rows.size() + 1);
  ASSERT_EQ(block.row_scale.size(), rows.size());
  ASSERT_EQ(block.column_scale.size(), position(block.num_groups) * columns.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto const group = block.row_groups.empty() ? 0 : block.row_groups[i];
    auto const row = rows.original_ids[i];
    for (auto k = position(block.row_offsets[i]); k < position(block.row_offsets[i + 1]); ++k) {
      auto const j = block.columns[k];
      if (k > position(block.row_offsets[i])) {
        ASSERT_LE(block.columns[k - 1], j); // equal only where repeats are kept
      }
      auto const column = columns.original_ids[position(j)];
      ASSERT_NE(row, column); // self loops are apart
      whole(row, column) += block.row_scale[i] * (block.values.empty() ? 1 : block.values[k]) *
                            block.column_scale[position(group * block.num_columns + j)];
    }
    if (auto const self = block.self_columns[i]; self >= 0) {
      ASSERT_EQ(columns.original_ids[position(self)], row);
      whole(row, row) += block.self_scale[i];
    }
  }
}

void expect_equal(Dense const& found, Dense const& expected) {
  for (std::int64_t i = 0; i < expected.rows; ++i)
    for (std::int64_t j = 0; j < expected.columns; ++j)
      ASSERT_NEAR(found(i, j), expected(i, j), 1e-12 * std::abs(expected(i, j))) << i << ", " << j;
}

class SampledBlocks : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  SampledBlocks()
      : world_(MPI_COMM_WORLD, "world"),
        self_(MPI_COMM_SELF, "self"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {}

  /// This rank's part of a whole matrix of blocks, of which the ranks along `third` have copies.
  [[nodiscard]] Dense part_of(SampledBlock<double> const& block, SampledVertices const& rows,
                              SampledVertices const& columns, std::int64_t n, pmm::AxisSet third) const {
    Dense part(n, n);
    if (grid_.coordinate(third) == 0) add_entries(block, rows, columns, part);
    return part;
  }
  /// The whole matrices. One reduction for all, as ranks that wait for each other are what this test costs.
  void put_together(std::vector<Dense>& parts) const {
    std::vector<double> numbers;
    for (auto const& part : parts)
      numbers.insert(numbers.end(), part.numbers.begin(), part.numbers.end());
    runtime::all_reduce(runtime::host, grid_.group(), numbers);
    auto next = numbers.begin();
    for (auto& part : parts) {
      auto const end = next + static_cast<std::ptrdiff_t>(part.numbers.size());
      part.numbers.assign(next, end);
      next = end;
    }
  }

  void expect_nothing_sent() const {
    EXPECT_TRUE(counted_calls(grid_).empty());
    for (std::size_t i = 0; i < runtime::num_operations; ++i)
      for (auto const* comm : {&world_, &self_})
        EXPECT_EQ(comm->ledger()[static_cast<runtime::Operation>(i)].bytes, 0);
  }

  /// One random (seed, epoch, step) on all blocks of the grid: every pair of axes and both parities.
  void check_draw(graph::GraphStore const& store, std::uint64_t draw, std::optional<double> train_fraction) {
    auto const random = runtime::RandomStream(19, runtime::Purpose::test, draw);
    auto const n = store.facts().num_vertices;
    auto const num_groups = std::int64_t{grid_.size(pmm::Axis::data)};
    auto const most = std::min<std::int64_t>(14, n / num_groups - 2); // enough batches for all groups
    auto const least = train_fraction ? 6 : 2;                        // some of both strata
    auto const size = least + static_cast<std::int64_t>(random.integer(static_cast<std::uint64_t>(most), 0));
    VertexSampler const sampler(
        {random.bits64(1), size, num_groups, 1 + static_cast<std::int64_t>(draw % 2), train_fraction}, n,
        store.facts().split_sizes[0]);
    auto const epoch = static_cast<std::int64_t>(random.integer(50, 2));
    auto const step =
        static_cast<std::int64_t>(random.integer(static_cast<std::uint64_t>(sampler.num_steps()), 3));
    auto const t = sampler.batch_of(step, grid_.coordinate(pmm::Axis::data));

    struct Wanted {
      pmm::AxisSet third;
      BlockHandle block;
      std::size_t rows;
      std::size_t columns;
    };
    std::vector<Wanted> all;
    BatchBuilder<double> builder(world_, store, sampler);
    for (auto const& [r, c] : axis_pairs())
      for (auto const parity : {Parity::even, Parity::odd}) {
        auto const block = pmm::block_of(grid_, {{r, c}, {n, n}});
        auto const handle = builder.add_block(parity, block.rows, block.columns);
        all.push_back({pmm::Layout{r, c}.third(), handle,
                       builder.add_range(graph::row_order(parity), block.rows),
                       builder.add_range(graph::column_order(parity), block.columns)});
      }
    Batch<double> batch;
    builder.build(epoch + 1, 0, batch); // what another batch leaves behind does no harm

    clear_ledgers(grid_);
    world_.ledger().clear();
    self_.ledger().clear();
    builder.build(epoch, t, batch);
    expect_nothing_sent();

    auto const members = members_of(batch.keys, vertices_by_key(store, batch.keys.num_strata()));
    auto const a = normalised_matrix(store);
    auto const expected = sampled_matrix(a, members, sampler.stratum_sizes());
    auto const expected_transposed = transposed(expected);
    std::vector<Dense> found;
    for (auto const& wanted : all) {
      auto const& rows = batch.vertices[wanted.rows];
      auto const& columns = batch.vertices[wanted.columns];
      found.push_back(part_of(batch.forward(wanted.block), rows, columns, n, wanted.third));
      found.push_back(part_of(batch.adjoint(wanted.block), columns, rows, n, wanted.third));
    }
    put_together(found);
    for (std::size_t i = 0; i < found.size(); i += 2) {
      expect_equal(found[i], expected);
      expect_equal(found[i + 1], expected_transposed);
    }
  }

  runtime::Communicator world_;
  runtime::Communicator self_;
  pmm::ProcessGrid grid_;
};

TEST_P(SampledBlocks, PutTogetherAreTheSubgraphAndNothingIsSent) {
  // More than twenty draws on every number of ranks, one or more on every grid.
  auto const num_grids = grids_4d(world_.size()).size();
  auto const num_draws = 1 + 20 / num_grids;
  auto const recipes = store_recipes();
  auto first = std::uint64_t{0}; // other draws on other grids
  for (auto const size : GetParam())
    first = 10 * first + static_cast<std::uint64_t>(size);
  for (std::uint64_t i = 0; i < num_draws; ++i) {
    auto const& recipe = recipes[(first + i) % recipes.size()];
    auto const store = make_store(self_, recipe);
    SCOPED_TRACE(::testing::Message() << recipe.name << ", draw " << first + i);
    check_draw(store, first + i, {});
    SCOPED_TRACE("two strata");
    if (grid_.size(pmm::Axis::data) <= 2) check_draw(store, first + i, 0.4);
  }
}

TEST_P(SampledBlocks, VerticesOfARangeAreThoseOfTheBatch) {
  auto const store = make_store(self_, store_recipes()[0]);
  auto const n = store.facts().num_vertices;
  VertexSampler const sampler({5, 7, 1, 1, 0.5}, n, store.facts().split_sizes[0]);
  BatchBuilder<float> builder(world_, store, sampler);
  Batch<float> batch;
  auto const vertices = vertices_by_key(store, 2);

  for (auto const order : {Order::p1, Order::p2})
    for (auto const axis : pmm::spatial_axes) {
      auto const range = runtime::balanced_range(n, grid_.size(axis), grid_.coordinate(axis));
      auto const handle = builder.add_range(order, range);
      EXPECT_EQ(builder.add_range(order, range), handle);
      auto const ids = store.read_original_ids(order, range);
      auto const others = store.read_original_ids(graph::other(order), {0, n});
      builder.add_other_positions(handle);

      builder.build(1, 2, batch);
      auto const members = members_of(batch.keys, vertices);

      auto const& found = batch.vertices[handle];
      std::size_t next = 0;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (members.is_in[position(ids[i])] == 0) continue;
        ASSERT_LT(next, found.size());
        EXPECT_EQ(found.positions[next], static_cast<std::int32_t>(i));
        EXPECT_EQ(found.original_ids[next], ids[i]);
        EXPECT_EQ(found.strata[next], members.stratum[position(ids[i])]);
        EXPECT_EQ(others[position(found.other_positions[next])], ids[i]);
        ++next;
      }
      EXPECT_EQ(next, found.size());
    }
}

// Every rank asks for vertices of its own, the second one for none, in windows of one word, two, and all.
TEST(SamplingKeys, NumberTheVerticesOfEachStratum) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  auto const store = make_store(self, {"sbm", "sbm:vertices=700,edges=2000,classes=3,features=4"});
  auto const vertices = vertices_by_key(store, 2);
  sampling::SamplingKeys const keys(world, store, 2);
  auto const rank = world.rank();

  EXPECT_EQ(keys.stratum_1_begin(), store.facts().split_sizes[0]);
  EXPECT_EQ(keys.num_bytes(), sampling::SamplingKeys::bytes(700, world.size(), rank));
  sampling::PackedIds ids(700, rank == 1 ? 0 : 300);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids.set(i, static_cast<std::int64_t>(i * 11 + position(rank)) % 700);
  for (std::int64_t const window : {1, 2, 1 << 20}) {
    auto const found = keys.of(ids, window);

    ASSERT_EQ(found.size(), ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i)
      ASSERT_EQ(vertices[position(found[i])], ids[i]);
  }
}

// 10^9 vertices, 15,625,000 words: every rank held them all and as many counts, 250 MB.
TEST(SamplingKeys, HoldAShareOnThousandsOfRanks) {
  constexpr std::int64_t n = 1'000'000'000;

  EXPECT_EQ(sampling::SamplingKeys::bytes(n, 2048, 0), 8 * 7630);
  EXPECT_EQ(sampling::SamplingKeys::bytes(n, 16384, 0), 8 * 954);
}

// A batch of all vertices is the full graph: factors of 1, every entry kept.
TEST_P(SampledBlocks, OfAllVerticesAreTheWholeMatrix) {
  auto const store = make_store(self_, store_recipes()[1]);
  auto const n = store.facts().num_vertices;
  VertexSampler const sampler({5, n, 1, 1, {}}, n, store.facts().split_sizes[0]);
  BatchBuilder<double> builder(world_, store, sampler);
  auto const block = pmm::block_of(grid_, {{pmm::Axis::z, pmm::Axis::x}, {n, n}});
  auto const handle = builder.add_block(Parity::odd, block.rows, block.columns);
  Batch<double> batch;

  builder.build(0, 0, batch);

  auto const rows = builder.add_range(Order::p2, block.rows);
  auto const columns = builder.add_range(Order::p1, block.columns);
  std::vector<Dense> found{
      part_of(batch.forward(handle), batch.vertices[rows], batch.vertices[columns], n, pmm::Axis::y)};
  put_together(found);
  expect_equal(found[0], normalised_matrix(store));
}

// Fewer vertices than ranks: some have no rows, no columns, or none of the batch.
TEST_P(SampledBlocks, MayBeEmpty) {
  if (grid_.size(pmm::Axis::data) > 1) return;
  auto const store = make_store(self_, {"ring", "ring:vertices=5,classes=2"});
  for (std::uint64_t draw = 0; draw < 3; ++draw)
    check_draw(store, draw, {});
}

TEST_P(SampledBlocks, AreSharedWhereTheyAreSymmetric) {
  auto const handle_of_odd = [&](StoreRecipe const& recipe, std::optional<double> train_fraction) {
    auto const store = make_store(self_, recipe);
    auto const n = store.facts().num_vertices;
    VertexSampler const sampler({5, 9, 1, 1, train_fraction}, n, store.facts().split_sizes[0]);
    BatchBuilder<float> builder(world_, store, sampler);
    auto const block = builder.add_block(Parity::even, {0, n}, {n / 3, n});
    EXPECT_EQ(builder.add_block(Parity::even, {0, n}, {n / 3, n}), block);
    return builder.add_block(Parity::odd, {n / 3, n}, {0, n});
  };
  auto const recipes = store_recipes();

  EXPECT_EQ(handle_of_odd(recipes[0], {}), (BlockHandle{0, true}));
  EXPECT_EQ(handle_of_odd(recipes[0], 0.5), (BlockHandle{1, false})); // m(a, b) is not m(b, a)
  EXPECT_EQ(handle_of_odd(recipes[1], {}), (BlockHandle{1, false}));  // directed
  EXPECT_EQ(handle_of_odd(recipes[2], {}), (BlockHandle{1, false}));  // D^-1 (A + I)
  EXPECT_EQ(handle_of_odd(recipes[3], {}), (BlockHandle{0, true}));   // one order
}

INSTANTIATE_TEST_SUITE_P(Grids, SampledBlocks, ::testing::ValuesIn(grids_4d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
