// SPDX-License-Identifier: Apache-2.0
//
// The aggregation whose messages travel while it multiplies, on every grid: against serial loops to the last
// bit, the ledgers against the list, and real numbers against those of the aggregation that waits.
#include "aggregate_fixture.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Operation;

class HiddenMessagesTest : public CellsFixture {
 protected:
  /// What this rank's rows become of reals, with the block or with its transpose.
  template<class T>
  std::vector<T> result(Planned const& planned, Cells const& cells, Roles const& roles, Flow flow, Wire wire,
                        AxisSet hidden_axes) {
    std::int64_t const width = 7;
    LocalSpmm<T> block(planned.block.on_device<T>(planned.num_columns));
    if (flow == Flow::transpose) block = LocalSpmm<T>(transposed(block.block()));
    AggregatePlan const plan{"H = A F",  {},   roles, sizes_of(cells, roles),
                             width,      flow, wire,  planned.needed->counts(),
                             hidden_axes};
    Aggregate<T> aggregate(grid_, plan, block, std::make_shared<Workspace<T>>(), planned.needed);
    auto const n = std::int64_t{101};
    auto const f = make_dense(n, width, [](auto i, auto j) { return small_real(60, i, j); });
    auto const placement = owned(cells, n, width);
    auto const in = distributed<T>(grid_, placement, renumbered(cells, f));
    auto const out = stained<T>(grid_, placement);
    aggregate.run(exec_, in, out);
    aggregate.run(exec_, in, out); // again, in the same memory
    auto const host = host_copy(out.storage());
    return {host.data(), host.data() + host.extent(0)};
  }
};

Dense reals(std::uint64_t seed, std::int64_t n, std::uint64_t one_in) {
  return make_dense(n, n, [&](auto i, auto j) {
    return mixed(seed, i, j) % one_in == 0 ? small_real(seed + 1, i, j) : 0.0;
  });
}

TEST_P(HiddenMessagesTest, ProductAndBothAdjointsEqualSerialOnes) {
  for (auto const n : {std::int64_t{101}, std::int64_t{5}}) {
    auto const a = make_dense(n, n, [&](auto i, auto j) { // empty rows and columns, too
      return mixed(61, i, j) % 30 == 0 ? 1 + static_cast<double>(mixed(62, i, j) % 3) : 0.0;
    });
    for (auto const& cells : {contiguous(grid_.shape(), n), drawn_cells(grid_.shape(), n)})
      for (auto const& roles : all_roles())
        for (auto const gather : {Gather::all, Gather::needed}) {
          auto const planned = plan(a, cells, roles, gather);
          LocalSpmm<double> const block(planned.block.on_device(planned.num_columns));
          LocalSpmm<double> const back(transposed(block.block()));
          for (std::int64_t const width : {1, 7}) {
            auto const f = integers(63, n, width);
            expect_aggregate(cells, roles, Flow::forward, block, f, product(a, f), planned.needed,
                             group_axes);
            expect_aggregate(cells, roles, Flow::transpose, back, f, product(transposed(a), f),
                             planned.needed, group_axes);
          }
        }
  }
}

/// Messages that are read from the sender's memory: of 3 ranks and more, a chunk takes the place of an earlier
/// one.
TEST_P(HiddenMessagesTest, AChunkStaysUntilItIsSent) {
  std::int64_t const n = 101, width = 1000;
  auto const a = make_dense(n, n, SparseRecipe{67, true, false});
  auto const f = integers(68, n, width);
  auto const cells = contiguous(grid_.shape(), n);
  LocalSpmm<double> const block(
      block_of_lists(a, listed(cells, Axis::x, Axis::y), listed(cells, Axis::z, Axis::y)));
  auto const expected = product(a, f);
  for (int repetition = 0; repetition < 5; ++repetition)
    expect_aggregate(cells, {}, Flow::forward, block, f, expected, nullptr, group_axes);
}

/// What a rank sends along the axis of the sum, in one call for each slab.
TEST_P(HiddenMessagesTest, BytesAreThoseOfAReduceScatter) {
  std::int64_t const n = 101, width = 24;
  auto const a = make_dense(n, n, SparseRecipe{64, true, false});
  auto const f = integers(65, n, width);
  auto const cells = contiguous(grid_.shape(), n);
  for (auto const& roles : all_roles()) {
    LocalSpmm<double> const block(
        block_of_lists(a, listed(cells, roles.a, roles.b), listed(cells, roles.c, roles.b)));

    auto const calls =
        expect_aggregate(cells, roles, Flow::forward, block, f, product(a, f), nullptr, roles.a);

    auto const sizes = sizes_of(cells, roles);
    auto const num_ranks = grid_.size(roles.a);
    auto const slab = sizes.over_a[static_cast<std::size_t>(grid_.coordinate(roles.a))];
    auto const part = runtime::balanced_range(width, grid_.size(roles.b), grid_.coordinate(roles.b)).size();
    auto const along = [&](Operation operation) {
      auto const entry = calls.find({std::string(name_of(roles.a)), operation});
      return entry == calls.end() ? std::array<std::int64_t, 3>{} : entry->second;
    };
    EXPECT_EQ(along(Operation::reduce_scatter)[0], 0);
    EXPECT_EQ(along(Operation::all_to_all)[0], num_ranks > 1 ? num_ranks : 0);
    EXPECT_EQ(along(Operation::all_to_all)[2],
              num_ranks > 1 ? (sizes.num_rows() - slab) * part * std::int64_t{sizeof(double)} : 0);
  }
}

/// Sums of two numbers, sums on a 16-bit wire and those of needed rows have one order. A reduce_scatter of
/// more adds them as the library likes; then the sum is that of needed rows, in the order of the ranks.
TEST_P(HiddenMessagesTest, RealNumbersHaveTheSameBits) {
  auto const a = reals(66, 101, 9);
  auto const cells = drawn_cells(grid_.shape(), 101);
  for (auto const& roles : all_roles()) {
    auto const all = plan(a, cells, roles, Gather::all);
    auto const needed = plan(a, cells, roles, Gather::needed);
    for (auto const flow : {Flow::forward, Flow::transpose}) {
      auto const of = [&]<class T>(Planned const& planned, Wire wire, AxisSet hidden_axes, T) {
        return result<T>(planned, cells, roles, flow, wire, hidden_axes);
      };
      auto const in_order = of(needed, Wire::native, {}, 0.0);
      EXPECT_EQ(of(needed, Wire::native, group_axes, 0.0), in_order);
      EXPECT_EQ(of(all, Wire::native, group_axes, 0.0), in_order);
      if (grid_.size(flow == Flow::forward ? roles.a : roles.c) <= 2) {
        EXPECT_EQ(of(all, Wire::native, {}, 0.0), in_order);
      }
      for (auto const& planned : {all, needed})
        EXPECT_EQ(of(planned, Wire::bf16, group_axes, 0.0F), of(planned, Wire::bf16, {}, 0.0F));
    }
  }
}

/// What takes the place of P: two of its chunks, and an addend of each rank in the slot of the sum.
TEST(HiddenMessages, TwoChunksAreHeldInPlaceOfTheProduct) {
  GridShape const shape{1, 16, 1, 4};
  std::int64_t const n = 6400, width = 8;
  auto const bytes_with = [&](AxisSet hidden_axes) {
    StepPlan step(shape, {}, sizeof(float));
    AggregatePlan plan{"H = A F",     {},          {}, contiguous_cells(shape, {}, {}, n), width,
                       Flow::forward, Wire::native};
    plan.hidden_axes = hidden_axes;
    WorkspacePlan work;
    plan_buffers(work, step, plan);
    work.list(step);
    std::vector<std::int64_t> bytes;
    for (auto const& array : step.arrays())
      bytes.push_back(array.bytes / std::int64_t{sizeof(float)} / width);
    return bytes;
  };
  // 100 rows of each rank: 4 slabs to gather, 16 to sum.
  EXPECT_EQ(bytes_with({}), (std::vector<std::int64_t>{400, 1600}));
  EXPECT_EQ(bytes_with(Axis::x), (std::vector<std::int64_t>{1600, 400, 200}));
}

TEST(HiddenMessages, PrefetchingTwiceIsRefused) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  ProcessGrid const grid(world, {1, 1, world.size(), 1});
  auto const sizes = contiguous_cells(grid.shape(), grid.coordinates(), {}, 20);
  SparseBlock<double> block;
  block.csr = {sizes.num_rows(), sizes.num_columns(),
               device_copy(std::vector<runtime::Offset>(static_cast<std::size_t>(sizes.num_rows() + 1))),
               device_copy(std::vector<runtime::LocalColumn>{}), device_copy(std::vector<double>{})};
  Aggregate<double> aggregate(grid,
                              {"H = A F", {}, {}, sizes, 3, Flow::forward, Wire::native, {}, group_axes},
                              LocalSpmm<double>(block), std::make_shared<Workspace<double>>());
  DistMatrix<double> const from(grid, {{group_axes, {}}, {20, 3}}, "from");
  auto const to = stained<double>(grid, from.placement());
  aggregate.prefetch(DefaultExec(), from);
  EXPECT_THROW(aggregate.prefetch(DefaultExec(), from), runtime::Error);
  aggregate.run(DefaultExec(), from, to);
  EXPECT_EQ(largest_error(to, Dense(20, 3)), 0);
}

INSTANTIATE_TEST_SUITE_P(Grids, HiddenMessagesTest, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
