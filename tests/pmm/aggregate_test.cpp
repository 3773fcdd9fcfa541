// SPDX-License-Identifier: Apache-2.0
//
// The aggregation of rows that have one owner, on every grid: contiguous and drawn cells, all roles, both
// adjoints, widths below and above the ranks of an axis, against serial loops to the last bit; and the
// ledgers against the list and against formulas.
#include "aggregate_fixture.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Operation;

class AggregateTest : public CellsFixture {};

TEST_P(AggregateTest, ProductAndBothAdjointsEqualSerialOnes) {
  for (auto const n : {std::int64_t{101}, std::int64_t{5}}) {
    auto const a = make_dense(n, n, SparseRecipe{31, true, false});
    auto const symmetric = make_dense(n, n, [&](auto i, auto j) { return a(i, j) + a(j, i); });
    for (auto const& cells : {contiguous(grid_.shape(), n), drawn_cells(grid_.shape(), n)})
      for (auto const& roles : all_roles()) {
        auto const rows = listed(cells, roles.a, roles.b);
        auto const columns = listed(cells, roles.c, roles.b);
        LocalSpmm<double> const block(block_of_lists(a, rows, columns));
        LocalSpmm<double> const same(block_of_lists(symmetric, rows, columns));
        LocalSpmm<double> const back(transposed(block.block()));
        for (std::int64_t const width : {1, 7, 24}) {
          auto const f = integers(32, n, width);
          expect_aggregate(cells, roles, Flow::forward, block, f, product(a, f));
          expect_aggregate(cells, roles, Flow::transpose, back, f, product(transposed(a), f));
          expect_aggregate(cells, roles, Flow::forward, same, f, product(transposed(symmetric), f));
        }
      }
  }
}

/// Words that this rank sends on each axis: schedules of the form (G - 1) slab, and what leaves an exchange.
TEST_P(AggregateTest, BytesAreThoseOfTheFormulas) {
  std::int64_t const n = 101, width = 24;
  auto const a = make_dense(n, n, SparseRecipe{33, true, false});
  auto const f = integers(34, n, width);
  auto const cells = contiguous(grid_.shape(), n);
  for (auto const& roles : all_roles()) {
    LocalSpmm<double> const block(
        block_of_lists(a, listed(cells, roles.a, roles.b), listed(cells, roles.c, roles.b)));

    auto const calls = expect_aggregate(cells, roles, Flow::forward, block, f, product(a, f));

    auto const sizes = sizes_of(cells, roles);
    auto const ranks_of = [&](Axis axis) { return std::int64_t{grid_.size(axis)}; };
    auto const own = sizes.over_b[static_cast<std::size_t>(grid_.coordinate(roles.b))];
    auto const slab = std::accumulate(sizes.over_b.begin(), sizes.over_b.end(), std::int64_t{0});
    auto const part = runtime::balanced_range(width, ranks_of(roles.b), grid_.coordinate(roles.b)).size();
    auto const bytes_of = [&](Axis axis, Operation operation) {
      auto const entry = calls.find({std::string(name_of(axis)), operation});
      return entry == calls.end() ? std::int64_t{0} : entry->second[1] / std::int64_t{sizeof(double)};
    };
    EXPECT_EQ(bytes_of(roles.b, Operation::all_to_all),
              ranks_of(roles.b) > 1 ? own * (width - part) + (slab - own) * part : 0);
    EXPECT_EQ(bytes_of(roles.c, Operation::all_gather),
              ranks_of(roles.c) > 1 ? sizes.num_columns() * part : 0);
    EXPECT_EQ(bytes_of(roles.a, Operation::reduce_scatter),
              ranks_of(roles.a) > 1 ? sizes.num_rows() * part : 0);
  }
}

TEST_P(AggregateTest, ContiguousCellsAreTheListsOfTheRule) {
  for (auto const n : {std::int64_t{101}, std::int64_t{5}, std::int64_t{0}}) {
    auto const cells = contiguous(grid_.shape(), n);
    for (auto const& roles : all_roles()) {
      EXPECT_EQ(contiguous_cells(grid_.shape(), grid_.coordinates(), roles, n), sizes_of(cells, roles));
      auto const vertices_of = [](std::vector<Range> const& ranges) {
        std::vector<std::int64_t> all;
        for (auto const& range : ranges)
          for (auto v = range.begin; v < range.end; ++v)
            all.push_back(v);
        return all;
      };
      auto const columns = block_columns(grid_.shape(), grid_.coordinates(), roles, n);
      auto const rows = block_rows(grid_.shape(), grid_.coordinates(), roles, n);
      EXPECT_EQ(vertices_of(columns), listed(cells, roles.c, roles.b));
      EXPECT_EQ(vertices_of(rows), listed(cells, roles.a, roles.b));
      // Ranges that touch are one: the default roles have one range of rows.
      if (roles == Roles{} && n > 0) {
        EXPECT_LE(rows.size(), 1U);
      }
    }
  }
}

/// Every grid with an axis of one rank hides a wrong order; these do not.
TEST_P(AggregateTest, AnotherOrderOfTheColumnsIsWrong) {
  Roles const roles;
  if (grid_.size(roles.b) < 2 || grid_.size(roles.c) < 2) GTEST_SKIP() << "needs 2 ranks along b and c";
  std::int64_t const n = 101;
  auto const cells = contiguous(grid_.shape(), n);
  auto const a = make_dense(n, n, SparseRecipe{35, true, false});
  auto const f = integers(36, n, 8);
  LocalSpmm<double> const block(
      block_of_lists(a, listed(cells, roles.a, roles.b), listed(cells, roles.b, roles.c)));
  AggregatePlan const plan{"H = A F", {}, roles, sizes_of(cells, roles), 8, Flow::forward, Wire::native};
  Aggregate<double> aggregate(grid_, plan, block, workspace_);
  auto const placement = owned(cells, n, 8);
  auto const out = stained<double>(grid_, placement);
  aggregate.run(exec_, distributed<double>(grid_, placement, f), out);
  EXPECT_GT(runtime::all_reduced(world_, largest_error(out, product(a, f)), runtime::Reduction::max), 0);
}

TEST(Aggregate, BlocksAndMatricesOfOtherExtentsAreRefused) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  ProcessGrid const grid(world, {1, world.size(), 1, 1});
  auto const workspace = std::make_shared<Workspace<double>>();
  auto const sizes = contiguous_cells(grid.shape(), grid.coordinates(), {}, 20);
  AggregatePlan const plan{"H = A F", {}, {}, sizes, 3, Flow::forward, Wire::native};
  SparseBlock<double> wrong;
  wrong.csr = {sizes.num_rows() + 1, sizes.num_columns(),
               device_copy(std::vector<runtime::Offset>(static_cast<std::size_t>(sizes.num_rows() + 2))),
               device_copy(std::vector<runtime::LocalColumn>{}), device_copy(std::vector<double>{})};
  EXPECT_THROW(Aggregate<double>(grid, plan, LocalSpmm<double>(wrong), workspace), runtime::Error);
  auto right = wrong;
  right.csr.num_rows = sizes.num_rows();
  right.csr.row_offsets =
      device_copy(std::vector<runtime::Offset>(static_cast<std::size_t>(sizes.num_rows() + 1)));
  Aggregate<double> aggregate(grid, plan, LocalSpmm<double>(right), workspace);
  DistMatrix<double> const narrow(grid, {{group_axes, {}}, {20, 2}}, "narrow");
  EXPECT_THROW(aggregate.run(DefaultExec(), narrow, narrow), runtime::Error);
}

INSTANTIATE_TEST_SUITE_P(Grids, AggregateTest, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
