// SPDX-License-Identifier: Apache-2.0
//
// The maximum over stored entries and its adjoint on every grid, beside serial loops, to the last bit: numbers are few small
// integers, so most maxima are ties. And the ledgers against the list.
#include "pmm/aggregate_fixture.hpp"

#include "pmm/edges/edge_block.hpp"
#include "pmm/neighbors/edge_maximum.hpp"

#include <cmath>
#include <limits>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

std::size_t index_of(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct WholeMaximum {
  Dense p, d;
};

/// P_ic = max_j Y_jc, 0 without edges, of equal numbers the first j; D_jc is the sum of dP_ic over the rows i that take Y_jc. A NaN is
/// larger than all numbers.
WholeMaximum maximum_of(Dense const& pattern, Dense const& y, Dense const& dp) {
  WholeMaximum whole{Dense(pattern.rows, y.columns), Dense(y.rows, y.columns)};
  for (std::int64_t i = 0; i < pattern.rows; ++i)
    for (std::int64_t c = 0; c < y.columns; ++c) {
      std::int64_t best = -1;
      for (std::int64_t j = 0; j < pattern.columns; ++j)
        if (pattern(i, j) != 0 &&
            (best < 0 || (!std::isnan(y(best, c)) && (std::isnan(y(j, c)) || y(j, c) > y(best, c)))))
          best = j;
      if (best < 0) continue;
      whole.p(i, c) = y(best, c);
      whole.d(best, c) += dp(i, c);
    }
  return whole;
}

class EdgeMaximumTest : public CellsFixture {
 protected:
  static Vector<double> zeros(std::int64_t count) {
    return Vector<double>("orthant::testing::zeros", index_of(count));
  }
  Vector<double> own_rows(Dense const& whole, std::vector<std::int64_t> const& vertices) {
    std::vector<double> numbers;
    for (auto const vertex : vertices)
      for (std::int64_t c = 0; c < whole.columns; ++c)
        numbers.push_back(whole(vertex, c));
    return device_copy(numbers);
  }
  void expect_sum(BlockRows<double> const& rows, Vector<double> const& addends,
                  std::vector<std::int64_t> const& vertices, Dense const& whole, char const* what) {
    auto const sums = rows.steps().has_copy() ? zeros(rows.steps().num_own * rows.steps().width) : addends;
    rows.bring_back(exec_, addends, sums);
    auto const numbers = host_copy(sums);
    for (std::size_t i = 0; i < vertices.size(); ++i)
      for (std::int64_t c = 0; c < whole.columns; ++c)
        if (std::isnan(whole(vertices[i], c)))
          EXPECT_TRUE(std::isnan(numbers(i * index_of(whole.columns) + index_of(c)))) << what;
        else
          EXPECT_EQ(numbers(i * index_of(whole.columns) + index_of(c)), whole(vertices[i], c)) << what;
  }

  void expect_maximum(Cells const& cells, Roles const& roles, Dense const& pattern, Dense const& y,
                      Dense const& dp) {
    auto const expected = maximum_of(pattern, y, dp);
    auto const column_vertices = listed(cells, roles.c, roles.b);
    auto const own = cells[index_of(grid_.coordinate(group_axes))];
    auto const block =
        make_edge_block(block_of_lists(pattern, listed(cells, roles.a, roles.b), column_vertices).csr);
    Heads const columns{y.columns, 1};
    auto const rows_at = [&](BlockSide side) {
      return BlockRows<double>(grid_, {roles, sizes_of(cells, roles), side, columns, y.columns, 0},
                               workspace_);
    };
    auto const y_rows = rows_at(BlockSide::columns);
    auto const p_rows = rows_at(BlockSide::rows);
    auto const width = p_rows.steps().part.columns();
    auto const brought_y = y_rows.bring(exec_, own_rows(y, own), zeros(y_rows.steps().num_in_block()));
    auto const brought_dp = p_rows.bring(exec_, own_rows(dp, own), zeros(p_rows.steps().num_in_block()));
    auto const count = index_of(block.num_rows * width);
    MaximumMemory<double> const memory{Vector<runtime::ValueIndex<double>>("orthant::testing::found", count),
                                       Vector<runtime::LocalColumn>("orthant::testing::places", count)};
    auto const p = zeros(p_rows.steps().num_in_block());
    auto const d = zeros(y_rows.steps().num_in_block());
    clear_ledgers(grid_);
    CountedPasses const passes(grid_);

    edge_maximum(exec_, grid_.over(roles.a), grid_.passes(), block, device_copy(column_vertices), width,
                 brought_y, memory, MaximumPart::of_block, p);
    edge_maximum_backward(exec_, block, width, memory.places, brought_dp, d);

    auto step = step_of<double>(grid_);
    plan_edge_maximum(step, roles.a, block.num_rows, width);
    EXPECT_EQ(counted_calls(grid_), planned_calls(step));
    EXPECT_EQ(passes.list(), passes_of(step));
    expect_sum(p_rows, p, own, expected.p, "P");
    expect_sum(y_rows, d, own, expected.d, "D");

    edge_maximum(exec_, grid_.over(roles.a), grid_.passes(), block, device_copy(column_vertices), width,
                 brought_y, memory, MaximumPart::all, p);
    auto const first = p_rows.steps().first_head;
    expect_all(p, listed(cells, roles.a, roles.b), {first, first + width}, expected.p);
  }
  /// Rows of these vertices, whole but for columns of other ranks along b.
  void expect_all(Vector<double> const& p, std::vector<std::int64_t> const& vertices,
                  runtime::Range const& columns, Dense const& whole) {
    auto const numbers = host_copy(p);
    std::size_t k = 0;
    for (auto const vertex : vertices)
      for (auto c = columns.begin; c < columns.end; ++c, ++k)
        EXPECT_TRUE(numbers(k) == whole(vertex, c) ||
                    (std::isnan(numbers(k)) && std::isnan(whole(vertex, c))))
            << vertex << ", " << c;
  }
};

TEST_P(EdgeMaximumTest, EqualsSerialLoopsAndTiesGoToTheFirst) {
  for (auto const n : {std::int64_t{37}, std::int64_t{3}})
    for (auto const width : {std::int64_t{1}, std::int64_t{35}}) {
      auto pattern = make_dense(n, n, SparseRecipe{51, false, false});
      for (std::int64_t j = 0; j < n; ++j)
        pattern(1, j) = 0; // no neighbours
      auto y =
          make_dense(n, width, [](auto i, auto j) { return static_cast<double>(mixed(52, i, j) % 3) - 2; });
      y(0, 0) = -std::numeric_limits<double>::infinity();
      y(n - 1, 0) = std::numeric_limits<double>::infinity(); // less than a NaN
      y(1, 0) = y(2, 0) = std::nan("");
      auto const dp = make_dense(n, width, [](auto i, auto j) { return small_integer(53, i, j); });
      for (auto const& cells : {contiguous(grid_.shape(), n), drawn_cells(grid_.shape(), n)})
        for (auto const& roles : all_roles())
          expect_maximum(cells, roles, pattern, y, dp);
    }
}

// Stores may keep edges that were listed twice.
TEST_P(EdgeMaximumTest, TakesRepeatedEdgesOnce) {
  CsrMatrix<double> csr;
  csr.num_rows = 1;
  csr.num_columns = 2;
  csr.row_offsets = device_copy(std::vector<Offset>{0, 3});
  csr.columns = device_copy(std::vector<LocalColumn>{0, 0, 1});
  auto const block = make_edge_block(csr);
  MaximumMemory<double> const memory{Vector<runtime::ValueIndex<double>>("orthant::testing::found", 1),
                                     Vector<runtime::LocalColumn>("orthant::testing::places", 1)};
  auto const p = zeros(1);
  auto const d = zeros(2);

  edge_maximum(exec_, grid_.over(Axis::x), grid_.passes(), block,
               device_copy(std::vector<std::int64_t>{7, 8}), 1, device_copy(std::vector<double>{5, 3}),
               memory, MaximumPart::all, p);
  edge_maximum_backward(exec_, block, 1, memory.places, device_copy(std::vector<double>{2}), d);

  EXPECT_EQ(host_copy(p)(0), 5);
  EXPECT_EQ(host_copy(d)(0), 2);
  EXPECT_EQ(host_copy(d)(1), 0);
}

INSTANTIATE_TEST_SUITE_P(AllGrids, EdgeMaximumTest, ::testing::ValuesIn(grids_3d(world_size())), GridName());

} // namespace
} // namespace orthant::testing
