// SPDX-License-Identifier: Apache-2.0
//
// The aggregation of rows that have one owner, on every grid: contiguous and drawn cells, all roles, both
// adjoints, widths below and above the ranks of an axis, against serial loops to the last bit; and the
// ledgers against the list and against formulas. Here the cells are lists of vertices, and blocks are made
// from them entry by entry, so the orders of cells.hpp are written down a second time.
#include "pmm/aggregate/aggregate.hpp"

#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Operation;

std::vector<Roles> all_roles() {
  std::array axes{Axis::x, Axis::y, Axis::z};
  std::vector<Roles> all;
  do
    all.push_back({axes[0], axes[1], axes[2]});
  while (std::ranges::next_permutation(axes).found);
  return all;
}

/// The vertices of every rank's cell.
using Cells = std::vector<std::vector<std::int64_t>>;

Cells contiguous(GridShape const& shape, std::int64_t n) {
  Cells cells;
  for (int rank = 0; rank < shape.size(group_axes); ++rank) {
    auto const range = part_of(shape, coordinates_of(shape, rank), group_axes, n);
    cells.emplace_back(static_cast<std::size_t>(range.size()));
    std::iota(cells.back().begin(), cells.back().end(), range.begin);
  }
  return cells;
}

/// Unequal ones, some of them empty.
Cells drawn_cells(GridShape const& shape, std::int64_t n) {
  Cells cells(static_cast<std::size_t>(shape.size(group_axes)));
  for (std::int64_t v = 0; v < n; ++v) {
    auto const at = mixed(91, v, 0) % cells.size();
    cells[mixed(92, v, 0) % 3 == 0 ? 0 : at].push_back(v);
  }
  return cells;
}

class AggregateTest : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  /// Vertices of the cells of the ranks along `slow` and `fast`, `slow` slowest.
  std::vector<std::int64_t> listed(Cells const& cells, Axis slow, Axis fast) const {
    std::vector<std::int64_t> all;
    auto at = grid_.coordinates();
    for (at.along(slow) = 0; at.along(slow) < grid_.size(slow); ++at.along(slow))
      for (at.along(fast) = 0; at.along(fast) < grid_.size(fast); ++at.along(fast)) {
        auto const& cell = cells[static_cast<std::size_t>(rank_of(grid_.shape(), at))];
        all.insert(all.end(), cell.begin(), cell.end());
      }
    return all;
  }

  CellSizes sizes_of(Cells const& cells, Roles const& roles) const {
    CellSizes sizes;
    auto const size_at = [&](Coordinates const& at) {
      return std::ssize(cells[static_cast<std::size_t>(rank_of(grid_.shape(), at))]);
    };
    auto const over = [&](Axis axis, std::vector<std::int64_t>& into, bool adds_b) {
      for (int i = 0; i < grid_.size(axis); ++i) {
        auto at = grid_.coordinates();
        at.along(axis) = i;
        auto sum = std::int64_t{0};
        for (int b = 0; b < grid_.size(roles.b); ++b) {
          if (adds_b) at.along(roles.b) = b;
          if (adds_b || b == 0) sum += size_at(at);
        }
        into.push_back(sum);
      }
    };
    over(roles.b, sizes.over_b, false);
    over(roles.c, sizes.over_c, true);
    over(roles.a, sizes.over_a, true);
    return sizes;
  }

  SparseBlock<double> block_of_lists(Dense const& a, std::vector<std::int64_t> const& rows,
                                     std::vector<std::int64_t> const& columns) const {
    std::vector<runtime::Offset> offsets{0};
    std::vector<runtime::LocalColumn> entries;
    std::vector<double> values;
    for (auto const row : rows) {
      for (std::size_t k = 0; k < columns.size(); ++k)
        if (a(row, columns[k]) != 0) {
          entries.push_back(static_cast<runtime::LocalColumn>(k));
          values.push_back(a(row, columns[k]));
        }
      offsets.push_back(std::ssize(entries));
    }
    SparseBlock<double> block;
    block.csr = {std::ssize(rows), std::ssize(columns), device_copy(offsets), device_copy(entries),
                 device_copy(values)};
    return block;
  }

  /// Whole rows of this rank's cell; numbered cell after cell.
  Placement owned(Cells const& cells, std::int64_t n, std::int64_t width) const {
    auto const rank = grid_.coordinate(group_axes);
    auto begin = std::int64_t{0};
    for (int before = 0; before < rank; ++before)
      begin += std::ssize(cells[static_cast<std::size_t>(before)]);
    auto const end = begin + std::ssize(cells[static_cast<std::size_t>(rank)]);
    return {{group_axes, {}}, {n, width}, OwnRange{rank, {begin, end}}};
  }
  /// The rows of `whole` in that numbering.
  static Dense renumbered(Cells const& cells, Dense const& whole) {
    std::vector<std::int64_t> vertices;
    for (auto const& cell : cells)
      vertices.insert(vertices.end(), cell.begin(), cell.end());
    return make_dense(whole.rows, whole.columns,
                      [&](auto i, auto j) { return whole(vertices[static_cast<std::size_t>(i)], j); });
  }

  /// Runs it, and returns the calls that were counted.
  CallTotals expect_aggregate(Cells const& cells, Roles const& roles, Flow flow,
                              LocalSpmm<double> const& block, Dense const& from, Dense const& expected) {
    auto const n = from.rows;
    AggregatePlan const plan{"H = A F", {}, roles, sizes_of(cells, roles), from.columns, flow, Wire::native};
    Aggregate<double> aggregate(grid_, plan, block, workspace_);
    auto const placement = owned(cells, n, from.columns);
    auto const in = distributed<double>(grid_, placement, renumbered(cells, from));
    auto const out = stained<double>(grid_, placement);
    auto step = step_of<double>(grid_);
    plan_aggregate(step, plan, block.block().csr.num_nonzeros());
    auto const before = world_.instruments().flops.sparse;
    clear_ledgers(grid_);

    aggregate.run(exec_, in, out);

    EXPECT_EQ(largest_error(out, renumbered(cells, expected)), 0) << from.columns << " columns";
    auto const counted = counted_calls(grid_);
    EXPECT_EQ(counted, planned_calls(step));
    EXPECT_EQ(world_.instruments().flops.sparse - before, products_of(step).front().flops());
    return counted;
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
  DefaultExec exec_;
  std::shared_ptr<Workspace<double>> workspace_ = std::make_shared<Workspace<double>>();
};

Dense integers(std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
  return make_dense(rows, columns, [&](auto i, auto j) { return small_integer(seed, i, j); });
}

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
