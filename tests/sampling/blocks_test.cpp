// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a batch, put together over a grid, are the subgraph of the definition; and making them sends
// nothing.
#include "runtime/numbers/random.hpp"
#include "sampling/vertex_sampler.hpp"
#include "whole_blocks.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <optional>

namespace orthant::testing {
namespace {

using graph::Order;
using sampling::VertexSampler;

class SampledBlocks : public GridBlocks {
 protected:
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

    check_batch(store, sampler, sampling::BatchEdges::rescale, epoch, t,
                [&](sampling::BatchKeys const& keys) {
                  auto const members = members_of(keys, vertices_by_key(store, keys.num_strata()));
                  return sampled_matrix(normalised_matrix(store), members, sampler.stratum_sizes());
                });
  }
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

// Every rank asks for vertices of its own, the second one for none.
TEST(SamplingKeys, NumberTheVerticesOfEachStratum) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  auto const store = make_store(self, {"sbm", "sbm:vertices=700,edges=2000,classes=3,features=4"});
  auto const vertices = vertices_by_key(store, 2);
  sampling::SamplingKeys const keys(world, store, {sampling::Strata::By::training, {}}, 2);
  auto const rank = world.rank();
  auto const num_train = store.facts().split_sizes[0];

  EXPECT_EQ(keys.sizes(), (std::vector<std::int64_t>{num_train, 700 - num_train}));
  EXPECT_EQ(keys.num_bytes(), sampling::SamplingKeys::bytes(700, world.size(), rank));
  sampling::PackedIds ids(700, rank == 1 ? 0 : 300);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids.set(i, static_cast<std::int64_t>(i * 11 + position(rank)) % 700);
  auto const found = keys.of(ids);

  ASSERT_EQ(found.size(), ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i)
    ASSERT_EQ(vertices[position(found[i])], ids[i]);
}

// 10^9 vertices: no rank holds the keys of all.
TEST(SamplingKeys, HoldAShareOnThousandsOfRanks) {
  constexpr std::int64_t n = 1'000'000'000;

  EXPECT_EQ(sampling::SamplingKeys::bytes(n, 2048, 0), 4 * 488'282);
  EXPECT_EQ(sampling::SamplingKeys::bytes(n, 16384, 0), 4 * 61'036);
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
