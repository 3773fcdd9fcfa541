// SPDX-License-Identifier: Apache-2.0
//
// The aggregation that moves only the rows which blocks touch, on every grid: against serial loops to the
// last bit, the ledgers against the list and against counts taken from the whole matrix, the coverage of a
// random graph and of a path, and the choice.
#include "pmm/aggregate/needed_rows.hpp"

#include "aggregate_fixture.hpp"

#include <cmath>
#include <gtest/gtest.h>
#include <set>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Operation;

/// Integers, about two in a row, and some rows and columns without any.
Dense sparse_integers(std::uint64_t seed, std::int64_t n) {
  return make_dense(n, n, [&](auto i, auto j) {
    return mixed(seed, i, j) % 50 == 0 ? 1 + static_cast<double>(mixed(seed + 1, i, j) % 3) : 0.0;
  });
}

class NeededRowsTest : public CellsFixture {
 protected:
  /// Vertices of slab (i_a, *, i_c).
  std::vector<std::int64_t> slab(Cells const& cells, Roles const& roles, int i_a, int i_c) const {
    std::vector<std::int64_t> all;
    auto at = grid_.coordinates();
    at.along(roles.a) = i_a;
    at.along(roles.c) = i_c;
    for (at.along(roles.b) = 0; at.along(roles.b) < grid_.size(roles.b); ++at.along(roles.b)) {
      auto const& cell = cells[static_cast<std::size_t>(rank_of(grid_.shape(), at))];
      all.insert(all.end(), cell.begin(), cell.end());
    }
    return all;
  }
  /// Of slab (a, c') the columns in which A has an entry in a row of block c; of slab (a', c) the rows in
  /// which A has an entry in a column of block a.
  std::int64_t num_touched_columns(Dense const& matrix, Cells const& cells, Roles const& roles, int i_a,
                                   int i_c, int other_c) const {
    std::set<std::int64_t> touched;
    for (int a = 0; a < grid_.size(roles.a); ++a)
      for (auto const row : slab(cells, roles, a, i_c))
        for (auto const column : slab(cells, roles, i_a, other_c))
          if (matrix(row, column) != 0) touched.insert(column);
    return std::ssize(touched);
  }
  std::int64_t num_touched_rows(Dense const& matrix, Cells const& cells, Roles const& roles, int i_a, int i_c,
                                int other_a) const {
    std::set<std::int64_t> touched;
    for (int c = 0; c < grid_.size(roles.c); ++c)
      for (auto const column : slab(cells, roles, i_a, c))
        for (auto const row : slab(cells, roles, other_a, i_c))
          if (matrix(row, column) != 0) touched.insert(row);
    return std::ssize(touched);
  }
};

TEST_P(NeededRowsTest, ProductAndBothAdjointsEqualSerialOnes) {
  for (auto const n : {std::int64_t{101}, std::int64_t{5}}) {
    auto const a = sparse_integers(41, n);
    auto const symmetric = make_dense(n, n, [&](auto i, auto j) { return a(i, j) + a(j, i); });
    for (auto const& cells : {contiguous(grid_.shape(), n), drawn_cells(grid_.shape(), n)})
      for (auto const& roles : all_roles()) {
        auto const one_way = plan(a, cells, roles, Gather::needed);
        auto const both_ways = plan(symmetric, cells, roles, Gather::needed);
        LocalSpmm<double> const block(one_way.block.on_device(one_way.num_columns));
        LocalSpmm<double> const same(both_ways.block.on_device(both_ways.num_columns));
        LocalSpmm<double> const back(transposed(block.block()));
        for (std::int64_t const width : {1, 7, 24}) {
          auto const f = integers(42, n, width);
          expect_aggregate(cells, roles, Flow::forward, block, f, product(a, f), one_way.needed);
          expect_aggregate(cells, roles, Flow::transpose, back, f, product(transposed(a), f), one_way.needed);
          expect_aggregate(cells, roles, Flow::forward, same, f, product(transposed(symmetric), f),
                           both_ways.needed);
        }
      }
  }
}

/// Words that this rank sends: of its slab what the blocks of others touch, and of the slabs of others what
/// its own block touches. The adjoint by the transpose sends what the product receives.
TEST_P(NeededRowsTest, BytesAreThoseOfTheFormulas) {
  std::int64_t const n = 101, width = 24;
  auto const matrix = sparse_integers(43, n);
  auto const f = integers(44, n, width);
  for (auto const& cells : {contiguous(grid_.shape(), n), drawn_cells(grid_.shape(), n)})
    for (auto const& roles : all_roles()) {
      auto const planned = plan(matrix, cells, roles, Gather::needed);
      LocalSpmm<double> const block(planned.block.on_device(planned.num_columns));
      LocalSpmm<double> const back(transposed(block.block()));

      auto const forward =
          expect_aggregate(cells, roles, Flow::forward, block, f, product(matrix, f), planned.needed);
      auto const backward = expect_aggregate(cells, roles, Flow::transpose, back, f,
                                             product(transposed(matrix), f), planned.needed);

      auto const a = grid_.coordinate(roles.a);
      auto const c = grid_.coordinate(roles.c);
      auto const part = runtime::balanced_range(width, grid_.size(roles.b), grid_.coordinate(roles.b)).size();
      std::int64_t needs = 0, gives = 0, writes = 0, adds = 0;
      for (int other = 0; other < grid_.size(roles.c); ++other)
        if (other != c) {
          needs += num_touched_columns(matrix, cells, roles, a, c, other);
          gives += num_touched_columns(matrix, cells, roles, a, other, c);
        }
      for (int other = 0; other < grid_.size(roles.a); ++other)
        if (other != a) {
          writes += num_touched_rows(matrix, cells, roles, a, c, other);
          adds += num_touched_rows(matrix, cells, roles, other, c, a);
        }
      auto const words_of = [&](CallTotals const& calls, Axis axis) {
        auto const entry = calls.find({std::string(name_of(axis)), Operation::all_to_all});
        return entry == calls.end() ? std::int64_t{0} : entry->second[2] / std::int64_t{sizeof(double)};
      };
      EXPECT_EQ(words_of(forward, roles.c), gives * part);
      EXPECT_EQ(words_of(forward, roles.a), writes * part);
      EXPECT_EQ(words_of(backward, roles.a), adds * part);
      EXPECT_EQ(words_of(backward, roles.c), needs * part);
    }
}

/// Numbers of the lists, and what it costs to make them: counts and rows once along each axis.
TEST_P(NeededRowsTest, ListsAreExchangedOnce) {
  std::int64_t const n = 101;
  auto const matrix = sparse_integers(45, n);
  auto const cells = drawn_cells(grid_.shape(), n);
  for (auto const& roles : all_roles()) {
    clear_ledgers(grid_);

    auto const planned = plan(matrix, cells, roles, Gather::needed);

    auto const calls = counted_calls(grid_);
    auto const calls_along = [&](Axis axis) {
      auto const entry = calls.find({std::string(name_of(axis)), Operation::all_to_all});
      return entry == calls.end() ? std::int64_t{0} : entry->second[0];
    };
    auto const is_planned = [&](Axis axis) { return grid_.size(axis) > 1; };
    EXPECT_EQ(calls_along(roles.c), is_planned(roles.c) ? 2 : 0);
    EXPECT_EQ(calls_along(roles.a), is_planned(roles.a) ? 2 : 0);
    EXPECT_EQ(calls_along(roles.b), 0);
    EXPECT_EQ(planned.needed->over_c.has_value(), is_planned(roles.c));
    EXPECT_EQ(planned.needed->over_a.has_value(), is_planned(roles.a));

    auto const a = grid_.coordinate(roles.a);
    auto const c = grid_.coordinate(roles.c);
    for (int other = 0; planned.needed->over_c && other < grid_.size(roles.c); ++other) {
      auto const i = static_cast<std::size_t>(other);
      EXPECT_EQ(planned.needed->over_c->counts.touched[i],
                num_touched_columns(matrix, cells, roles, a, c, other));
      EXPECT_EQ(planned.needed->over_c->counts.asked[i],
                num_touched_columns(matrix, cells, roles, a, other, c));
    }
    for (int other = 0; planned.needed->over_a && other < grid_.size(roles.a); ++other) {
      auto const i = static_cast<std::size_t>(other);
      EXPECT_EQ(planned.needed->over_a->counts.touched[i],
                num_touched_rows(matrix, cells, roles, a, c, other));
      EXPECT_EQ(planned.needed->over_a->counts.asked[i], num_touched_rows(matrix, cells, roles, other, c, a));
    }
  }
}

/// Every ordered pair is an edge with probability d / n, so a row is needed by a block with probability
/// 1 - (1 - d / n)^(n / G), independently of the others. The draw is fixed: with other seeds one of the grids
/// now and then lies a little outside.
TEST_P(NeededRowsTest, CoverageOfARandomGraphIsThatOfTheFormula) {
  std::int64_t const n = 1024;
  for (auto const degree : {1.0, 4.0}) {
    auto const most = static_cast<std::uint64_t>(degree / static_cast<double>(n) * 0x1p53);
    auto const matrix =
        make_dense(n, n, [&](auto i, auto j) { return mixed(47, i, j) >> 11 < most && i != j ? 1.0 : 0.0; });
    Roles const roles;

    auto const planned = plan(matrix, contiguous(grid_.shape(), n), roles, Gather::needed);

    auto const expect_near = [&](std::optional<double> coverage, int num_ranks) {
      EXPECT_EQ(coverage.has_value(), num_ranks > 1);
      if (!coverage) return;
      auto const expected = 1 - std::exp(-degree / num_ranks);
      auto const num_pairs = static_cast<double>(n * (num_ranks - 1));
      EXPECT_NEAR(*coverage, expected, 3 * std::sqrt(expected * (1 - expected) / num_pairs));
    };
    expect_near(planned.needed->coverage_c, grid_.size(roles.c));
    expect_near(planned.needed->coverage_a, grid_.size(roles.a));
  }
}

/// In its natural order only the ends of cells have neighbors elsewhere.
TEST_P(NeededRowsTest, APathInItsOrderMovesNextToNothing) {
  std::int64_t const n = 1000, width = 3;
  auto const path = make_dense(n, n, [&](auto i, auto j) { return std::abs(i - j) <= 1 ? 1.0 : 0.0; });
  auto const cells = contiguous(grid_.shape(), n);
  for (auto const& roles : all_roles()) {
    auto const planned = plan(path, cells, roles, Gather::automatic);

    EXPECT_EQ(planned.needed->over_c.has_value(), grid_.size(roles.c) > 1);
    EXPECT_EQ(planned.needed->over_a.has_value(), grid_.size(roles.a) > 1);
    auto const most = 2.0 * grid_.size(group_axes) / static_cast<double>(n);
    EXPECT_LE(planned.needed->coverage_c.value_or(0), most);
    EXPECT_LE(planned.needed->coverage_a.value_or(0), most);
    auto const f = integers(47, n, width);
    Dense expected(n, width);
    for (std::int64_t i = 0; i < n; ++i)
      for (auto k = std::max<std::int64_t>(i - 1, 0); k <= std::min(i + 1, n - 1); ++k)
        for (std::int64_t j = 0; j < width; ++j)
          expected(i, j) += f(k, j);
    LocalSpmm<double> const block(planned.block.on_device(planned.num_columns));
    expect_aggregate(cells, roles, Flow::forward, block, f, expected, planned.needed);
  }
}

/// The mean over the group decides, axis by axis, so all ranks choose alike.
TEST_P(NeededRowsTest, TheChoiceIsOneOfTheGroup) {
  std::int64_t const n = 101;
  Roles const roles;
  auto const cells = contiguous(grid_.shape(), n);
  auto const dense = make_dense(n, n, [](auto, auto) { return 1.0; });
  EXPECT_EQ(plan(dense, cells, roles, Gather::automatic).needed->counts(), NeededCountsOfAxes{});
  // Half of the columns have entries, in all rows: half of the rows to gather, all rows to sum.
  auto const half = make_dense(n, n, [](auto, auto j) { return j % 2 == 0 ? 1.0 : 0.0; });
  auto const planned = plan(half, cells, roles, Gather::automatic);
  EXPECT_EQ(planned.needed->over_c.has_value(), grid_.size(roles.c) > 1);
  EXPECT_FALSE(planned.needed->over_a.has_value());
  clear_ledgers(grid_);
  EXPECT_EQ(plan(half, cells, roles, Gather::all).needed->counts(), NeededCountsOfAxes{});
  EXPECT_TRUE(counted_calls(grid_).empty());

  // Mixed choices run, too.
  auto const f = integers(48, n, 7);
  LocalSpmm<double> const block(planned.block.on_device(planned.num_columns));
  LocalSpmm<double> const back(transposed(block.block()));
  expect_aggregate(cells, roles, Flow::forward, block, f, product(half, f), planned.needed);
  expect_aggregate(cells, roles, Flow::transpose, back, f, product(transposed(half), f), planned.needed);
}

/// Addends are rounded as a reduce_scatter rounds them, this rank's own one, too, and added in its order; it
/// rounds the sum as well, which step 5 does here.
TEST_P(NeededRowsTest, SixteenBitsOnTheWireAreThoseOfWholeSlabs) {
  std::int64_t const n = 101, width = 7;
  auto const matrix = sparse_integers(49, n);
  auto const f = make_dense(n, width, [](auto i, auto j) { return small_real(50, i, j); });
  auto const cells = drawn_cells(grid_.shape(), n);
  auto const workspace = std::make_shared<Workspace<float>>();
  for (auto const& roles : all_roles()) {
    auto const result = [&](Gather gather) {
      auto const planned = plan(matrix, cells, roles, gather);
      AggregatePlan const plan{"H = A F",  {},
                               roles,      sizes_of(cells, roles),
                               width,      Flow::forward,
                               Wire::bf16, planned.needed->counts()};
      LocalSpmm<float> const block(planned.block.on_device<float>(planned.num_columns));
      Aggregate<float> aggregate(grid_, plan, block, workspace, planned.needed);
      auto const placement = owned(cells, n, width);
      auto const out = stained<float>(grid_, placement);
      aggregate.run(exec_, distributed<float>(grid_, placement, renumbered(cells, f)), out);
      return host_copy(out.storage());
    };

    auto const whole = result(Gather::all);
    auto const needed = result(Gather::needed);

    auto const has_rounded_sum = grid_.size(roles.a) > 1 || grid_.size(roles.b) > 1;
    for (std::size_t i = 0; i < whole.extent(0); ++i) {
      auto const half = runtime::encode(Wire::bf16, needed(i));
      EXPECT_EQ(whole(i), has_rounded_sum ? runtime::decode(Wire::bf16, half) : needed(i)) << i;
      if (grid_.size(roles.b) > 1) {
        EXPECT_EQ(whole(i), needed(i)) << i;
      }
    }
  }
}

TEST(NeededRows, WordsAndPatternsOfOtherExtentsAreRefused) {
  EXPECT_EQ(parse_gather("auto"), Gather::automatic);
  EXPECT_EQ(parse_gather("all"), Gather::all);
  EXPECT_EQ(parse_gather("needed"), Gather::needed);
  EXPECT_THROW(static_cast<void>(parse_gather("some")), runtime::UserError);
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  ProcessGrid const grid(world, {1, 1, 1, world.size()});
  auto const sizes = contiguous_cells(grid.shape(), grid.coordinates(), {}, 20);
  HostBlock block;
  HostPattern const pattern{block.offsets, block.entries};
  if (sizes.num_rows() > 0) {
    EXPECT_THROW(static_cast<void>(plan_needed_rows(grid, {}, sizes, pattern, Gather::needed)),
                 runtime::Error);
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, NeededRowsTest, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
