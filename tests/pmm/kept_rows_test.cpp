// SPDX-License-Identifier: Apache-2.0
//
// Rows of which a part is kept, on every grid: which columns they touch, the cells of what is left, and the
// aggregation of it with both adjoints, against serial loops; all rows moving, and only the needed ones.
#include "pmm/aggregate/needed_rows.hpp"

#include "aggregate_fixture.hpp"
#include "pmm/aggregate/row_lists.hpp"

#include <functional>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

using Claim = std::function<bool(std::int64_t)>; // of a vertex

class KeptRowsTest : public CellsFixture {
 protected:
  static constexpr std::int64_t n = 101;

  static Cells filtered(Cells cells, Claim const& is_kept) {
    for (auto& cell : cells)
      std::erase_if(cell, [&](std::int64_t v) { return !is_kept(v); });
    return cells;
  }
  [[nodiscard]] KeptFlags own_flags(Cells const& cells, Claim const& is_kept) const {
    KeptFlags flags;
    for (auto const v : cells[static_cast<std::size_t>(grid_.coordinate(group_axes))])
      flags.push_back(is_kept(v) ? 1 : 0);
    return flags;
  }
  static Claim touched_by(Dense const& a, Claim const& is_kept) {
    std::vector<bool> touched(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        if (is_kept(i) && a(i, j) != 0) touched[static_cast<std::size_t>(j)] = true;
    return [=](std::int64_t v) { return touched[static_cast<std::size_t>(v)]; };
  }
  /// The rows of `whole` that the cells list, cell after cell.
  static Dense rows_of(Cells const& cells, Dense const& whole) {
    std::vector<std::int64_t> all;
    for (auto const& cell : cells)
      all.insert(all.end(), cell.begin(), cell.end());
    return make_dense(std::ssize(all), whole.columns,
                      [&](auto i, auto j) { return whole(all[static_cast<std::size_t>(i)], j); });
  }
  [[nodiscard]] Placement placed(Cells const& cells, std::int64_t width) const {
    auto count = std::int64_t{0};
    for (auto const& cell : cells)
      count += std::ssize(cell);
    return owned(cells, count, width);
  }

  void expect_run(AggregatePlan const& plan, LocalSpmm<double> const& block,
                  std::shared_ptr<NeededRows const> const& needed, Cells const& in_cells, Dense const& from,
                  Cells const& out_cells, Dense const& expected) {
    Aggregate<double> aggregate(grid_, plan, block, workspace_, needed);
    auto const in = distributed<double>(grid_, placed(in_cells, from.columns), rows_of(in_cells, from));
    auto const out = stained<double>(grid_, placed(out_cells, from.columns));
    auto step = step_of<double>(grid_);
    plan_aggregate(step, plan, block.block().csr.num_nonzeros());
    clear_ledgers(grid_);

    aggregate.run(exec_, in, out);

    EXPECT_EQ(largest_error(out, rows_of(out_cells, expected)), 0) << from.columns << " columns";
    EXPECT_EQ(counted_calls(grid_), planned_calls(step));
  }

  /// Zero in the rows that are not kept, as if they had no gradient.
  static Dense masked(Dense const& whole, Claim const& is_kept) {
    return make_dense(whole.rows, whole.columns,
                      [&](auto i, auto j) { return is_kept(i) ? whole(i, j) : 0.0; });
  }

  void expect_exact(Dense const& a, Cells const& cells, Roles const& roles, Claim const& is_kept) {
    auto const sizes = sizes_of(cells, roles);
    auto whole = host_block_of_lists(a, listed(cells, roles.a, roles.b), listed(cells, roles.c, roles.b));
    HostPattern const pattern{whole.offsets, whole.entries};
    auto const is_touched = touched_by(a, is_kept);
    auto const out_cells = filtered(cells, is_kept);
    auto const in_cells = filtered(cells, is_touched);

    auto const outputs = share_kept_rows(grid_, roles, sizes, own_flags(cells, is_kept));
    auto const touched = rows_touched_by(grid_, roles, sizes, pattern, outputs);
    auto const inputs = share_kept_rows(grid_, roles, sizes, touched);
    auto const kept = sizes_of_kept(grid_, roles, sizes, inputs, outputs);

    EXPECT_EQ(touched, own_flags(cells, is_touched));
    EXPECT_EQ(outputs.num_global, placed(out_cells, 1).extents.rows);
    auto const of_columns = sizes_of(in_cells, roles);
    auto const of_rows = sizes_of(out_cells, roles);
    EXPECT_EQ(kept, (CellSizes{of_columns.over_b, of_columns.over_c, of_rows.over_a, of_rows.over_b}));

    auto const rows = listed(out_cells, roles.a, roles.b);
    auto const columns = listed(in_cells, roles.c, roles.b);
    for (auto const gather : {Gather::all, Gather::needed}) {
      auto host = host_block_of_lists(a, rows, columns);
      HostPattern const left{host.offsets, host.entries};
      auto const needed =
          std::make_shared<NeededRows const>(plan_needed_rows(grid_, roles, kept, left, gather));
      keep_needed(*needed, left);
      LocalSpmm<double> const block(host.on_device(needed->num_columns(kept)));
      LocalSpmm<double> const back(transposed(block.block()));
      for (std::int64_t const width : {1, 7}) {
        auto const f = integers(42, n, width);
        AggregatePlan plan{"H = A F", {}, roles, kept, width, Flow::forward, Wire::native, needed->counts()};
        expect_run(plan, block, needed, in_cells, f, out_cells, product(a, f));
        plan.flow = Flow::transpose;
        expect_run(plan, back, needed, out_cells, f, in_cells, product(transposed(a), masked(f, is_kept)));
      }
    }
  }
};

TEST_P(KeptRowsTest, AreAggregatedAsAmongAllRows) {
  auto const a = make_dense(n, n, SparseRecipe{41, true, false});
  Claim const some = [](std::int64_t v) { return mixed(43, v, 0) % 5 == 0; };
  Claim const one = [](std::int64_t v) { return v == 17; }; // most cells are empty
  Claim const none = [](std::int64_t) { return false; };
  Claim const all = [](std::int64_t) { return true; };
  for (auto const& cells : {contiguous(grid_.shape(), n), drawn_cells(grid_.shape(), n)})
    for (auto const& roles : all_roles())
      for (auto const& is_kept : {some, one, none, all})
        expect_exact(a, cells, roles, is_kept);
}

TEST_P(KeptRowsTest, FlagsOfAnotherLengthAreRefused) {
  auto const sizes = contiguous_cells(grid_.shape(), grid_.coordinates(), {}, n);
  EXPECT_THROW(static_cast<void>(share_kept_rows(grid_, {}, sizes, KeptFlags(n + 1))), runtime::Error);
}

TEST(RowSelections, SpreadWhatTheySelect) {
  DefaultExec const exec;
  auto const selection = make_row_selection({1, 2, 5}, 6);
  std::vector<double> numbers(12);
  std::iota(numbers.begin(), numbers.end(), 1);
  Vector<double> const selected("orthant::testing::selected", 6);
  auto const all = device_copy(std::vector<double>(12, -1));

  runtime::PassLedger passes;
  select_rows(exec, passes, selection, device_copy(numbers), 2, selected);
  spread_rows(exec, passes, selection, selected, 2, all);

  auto const found = host_copy(all);
  std::vector<double> const expected{0, 0, 3, 4, 5, 6, 0, 0, 0, 0, 11, 12};
  EXPECT_EQ(std::vector<double>(found.data(), found.data() + found.extent(0)), expected);
  // 3 rows of 16 bytes and as many places of 4 are read; then the rows, 3 places and 7 offsets of 8 bytes.
  EXPECT_EQ(passes.total, (runtime::PassCount{2, (48 + 12) + (48 + 24 + 56), 48 + 96}));
}

INSTANTIATE_TEST_SUITE_P(Grids, KeptRowsTest, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
