#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Cells of rows with one owner as lists of vertices, blocks that are made from them entry by entry (so the
// orders of cells.hpp are written down a second time), and a fixture of one grid.

#include "pmm/aggregate/aggregate.hpp"

#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <vector>

namespace orthant::testing {

inline std::vector<pmm::Roles> all_roles() {
  std::array axes{pmm::Axis::x, pmm::Axis::y, pmm::Axis::z};
  std::vector<pmm::Roles> all;
  do
    all.push_back({axes[0], axes[1], axes[2]});
  while (std::ranges::next_permutation(axes).found);
  return all;
}

/// The vertices of every rank's cell.
using Cells = std::vector<std::vector<std::int64_t>>;

inline Cells contiguous(pmm::GridShape const& shape, std::int64_t n) {
  Cells cells;
  for (int rank = 0; rank < shape.size(pmm::group_axes); ++rank) {
    auto const range = pmm::part_of(shape, pmm::coordinates_of(shape, rank), pmm::group_axes, n);
    cells.emplace_back(static_cast<std::size_t>(range.size()));
    std::iota(cells.back().begin(), cells.back().end(), range.begin);
  }
  return cells;
}

/// Unequal ones, some of them empty.
inline Cells drawn_cells(pmm::GridShape const& shape, std::int64_t n) {
  Cells cells(static_cast<std::size_t>(shape.size(pmm::group_axes)));
  for (std::int64_t v = 0; v < n; ++v) {
    auto const at = mixed(91, v, 0) % cells.size();
    cells[mixed(92, v, 0) % 3 == 0 ? 0 : at].push_back(v);
  }
  return cells;
}

/// A block in CSR on the host.
struct HostBlock {
  std::vector<runtime::Offset> offsets{0};
  std::vector<runtime::LocalColumn> entries;
  std::vector<double> values;

  template<class T = double>
  [[nodiscard]] pmm::SparseBlock<T> on_device(std::int64_t num_columns) const {
    pmm::SparseBlock<T> block;
    block.csr = {std::ssize(offsets) - 1, num_columns, device_copy(offsets), device_copy(entries),
                 device_copy(std::vector<T>(values.begin(), values.end()))};
    return block;
  }
};

inline HostBlock host_block_of_lists(Dense const& a, std::vector<std::int64_t> const& rows,
                                     std::vector<std::int64_t> const& columns) {
  HostBlock block;
  for (auto const row : rows) {
    for (std::size_t k = 0; k < columns.size(); ++k)
      if (a(row, columns[k]) != 0) {
        block.entries.push_back(static_cast<runtime::LocalColumn>(k));
        block.values.push_back(a(row, columns[k]));
      }
    block.offsets.push_back(std::ssize(block.entries));
  }
  return block;
}
inline pmm::SparseBlock<double> block_of_lists(Dense const& a, std::vector<std::int64_t> const& rows,
                                               std::vector<std::int64_t> const& columns) {
  return host_block_of_lists(a, rows, columns).on_device(std::ssize(columns));
}

class CellsFixture : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  /// Vertices of the cells of the ranks along `slow` and `fast`, `slow` slowest.
  std::vector<std::int64_t> listed(Cells const& cells, pmm::Axis slow, pmm::Axis fast) const {
    std::vector<std::int64_t> all;
    auto at = grid_.coordinates();
    for (at.along(slow) = 0; at.along(slow) < grid_.size(slow); ++at.along(slow))
      for (at.along(fast) = 0; at.along(fast) < grid_.size(fast); ++at.along(fast)) {
        auto const& cell = cells[static_cast<std::size_t>(pmm::rank_of(grid_.shape(), at))];
        all.insert(all.end(), cell.begin(), cell.end());
      }
    return all;
  }

  pmm::CellSizes sizes_of(Cells const& cells, pmm::Roles const& roles) const {
    pmm::CellSizes sizes;
    auto const size_at = [&](pmm::Coordinates const& at) {
      return std::ssize(cells[static_cast<std::size_t>(pmm::rank_of(grid_.shape(), at))]);
    };
    auto const over = [&](pmm::Axis axis, std::vector<std::int64_t>& into, bool adds_b) {
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

  /// What a rank has once its block lost what no entry touches.
  struct Planned {
    std::shared_ptr<pmm::NeededRows const> needed;
    HostBlock block;
    std::int64_t num_columns = 0;
  };
  /// Collective over the group.
  Planned plan(Dense const& a, Cells const& cells, pmm::Roles const& roles, pmm::Gather gather) {
    auto const columns = listed(cells, roles.c, roles.b);
    Planned planned;
    planned.block = host_block_of_lists(a, listed(cells, roles.a, roles.b), columns);
    pmm::HostPattern const pattern{planned.block.offsets, planned.block.entries};
    planned.needed = std::make_shared<pmm::NeededRows>(
        plan_needed_rows(grid_, roles, sizes_of(cells, roles), pattern, gather));
    keep_needed(*planned.needed, pattern);
    auto const& over_c = planned.needed->over_c;
    planned.num_columns = over_c ? std::ssize(over_c->touched) : std::ssize(columns);
    return planned;
  }

  /// Whole rows of this rank's cell; numbered cell after cell.
  pmm::Placement owned(Cells const& cells, std::int64_t n, std::int64_t width) const {
    auto const rank = grid_.coordinate(pmm::group_axes);
    auto begin = std::int64_t{0};
    for (int before = 0; before < rank; ++before)
      begin += std::ssize(cells[static_cast<std::size_t>(before)]);
    auto const end = begin + std::ssize(cells[static_cast<std::size_t>(rank)]);
    return {{pmm::group_axes, {}}, {n, width}, pmm::OwnRange{rank, {begin, end}}};
  }
  /// The rows of `whole` in that numbering.
  static Dense renumbered(Cells const& cells, Dense const& whole) {
    std::vector<std::int64_t> vertices;
    for (auto const& cell : cells)
      vertices.insert(vertices.end(), cell.begin(), cell.end());
    return make_dense(whole.rows, whole.columns,
                      [&](auto i, auto j) { return whole(vertices[static_cast<std::size_t>(i)], j); });
  }

  /// Runs it, and returns the calls that were counted. `needed`: null for all rows. `hidden_axes`: as in the
  /// plan; if it is given, step 1 is prefetched.
  CallTotals expect_aggregate(Cells const& cells, pmm::Roles const& roles, pmm::Flow flow,
                              pmm::LocalSpmm<double> const& block, Dense const& from, Dense const& expected,
                              std::shared_ptr<pmm::NeededRows const> const& needed = nullptr,
                              pmm::AxisSet hidden_axes = {}) {
    auto const n = from.rows;
    pmm::AggregatePlan plan{"H = A F",        {}, roles, sizes_of(cells, roles), from.columns, flow,
                            pmm::Wire::native};
    if (needed) plan.needed = needed->counts();
    plan.hidden_axes = hidden_axes;
    pmm::Aggregate<double> aggregate(grid_, plan, block, workspace_, needed);
    auto const placement = owned(cells, n, from.columns);
    auto const in = distributed<double>(grid_, placement, renumbered(cells, from));
    auto const out = stained<double>(grid_, placement);
    auto step = step_of<double>(grid_);
    plan_aggregate(step, plan, block.block().csr.num_nonzeros());
    auto const before = world_.instruments().flops.sparse;
    clear_ledgers(grid_);
    CountedPasses const passes(grid_);

    if (hidden_axes != pmm::AxisSet{}) aggregate.prefetch(exec_, in);
    aggregate.run(exec_, in, out);

    EXPECT_EQ(largest_error(out, renumbered(cells, expected)), 0) << from.columns << " columns";
    auto const counted = counted_calls(grid_);
    EXPECT_EQ(counted, planned_calls(step));
    EXPECT_EQ(passes.list(), passes_of(step));
    EXPECT_EQ(world_.instruments().flops.sparse - before, products_of(step).front().flops());
    return counted;
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
  pmm::DefaultExec exec_;
  std::shared_ptr<pmm::Workspace<double>> workspace_ = std::make_shared<pmm::Workspace<double>>();
};

inline Dense integers(std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
  return make_dense(rows, columns, [&](auto i, auto j) { return small_integer(seed, i, j); });
}

} // namespace orthant::testing
