// SPDX-License-Identifier: Apache-2.0
//
// Attention over stored entries on every grid: rows that come to blocks and go back, to the last bit; scores, softmax, products and
// all their adjoints against serial loops of the equations; and the ledgers against the list.
#include "pmm/aggregate_fixture.hpp"

#include "pmm/edges/edge_block.hpp"
#include "pmm/edges/edge_products.hpp"
#include "pmm/edges/edge_softmax.hpp"

#include <cmath>
#include <functional>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

// Numbers of size 1, sums of a few dozen of them.
constexpr auto tolerance = 1e-12;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// What an attention layer of whole matrices computes. With a dropout mask in the coefficients.
struct Whole {
  Dense pattern;
  Heads heads;
  bool is_dynamic;
  Dense left, right; // s and t, or L and R
  Dense attention;   // [heads x width], if dynamic
  Dense values;      // Y
  Dense gradient;    // dP
  std::function<bool(std::int64_t, std::int64_t, std::int64_t)> is_dropped;
  double factor = 1; // of those that are kept
};
/// With reals in all matrices; which coefficients are dropped is to be set.
Whole whole_of(Dense pattern, Heads const& heads, bool is_dynamic) {
  auto const n = pattern.rows;
  auto const score_width = heads.count * (is_dynamic ? heads.width : 1);
  auto const reals = [](std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
    return make_dense(rows, columns, [&](auto i, auto j) { return 2 * small_real(seed, i, j); });
  };
  return {std::move(pattern),
          heads,
          is_dynamic,
          reals(52, n, score_width),
          reals(53, n, score_width),
          reals(54, heads.count, heads.width),
          reals(55, n, heads.columns()),
          reals(56, n, heads.columns()),
          {},
          1};
}
struct WholeResult {
  Dense p, d_left, d_right, d_values, d_attention;
};

double leaky(double z) {
  return z > 0 ? z : 0.2 * z;
}
double leaky_slope(double z) {
  return z > 0 ? 1 : 0.2;
}

/// Row by row: Velickovic et al., equations 1 to 4; Brody et al., equation 7; and the chain rule.
WholeResult attend(Whole const& w) {
  auto const n = w.pattern.rows;
  auto const width = w.heads.width;
  WholeResult result{Dense(n, w.heads.columns()), Dense(n, w.left.columns), Dense(n, w.right.columns),
                     Dense(n, w.heads.columns()), Dense(w.heads.count, width)};
  auto const score_width = w.is_dynamic ? width : 1;
  for (std::int64_t h = 0; h < w.heads.count; ++h)
    for (std::int64_t i = 0; i < n; ++i) {
      std::vector<std::int64_t> neighbours;
      for (std::int64_t j = 0; j < n; ++j)
        if (w.pattern(i, j) != 0) neighbours.push_back(j);
      auto const z = [&](std::int64_t j, std::int64_t c) {
        return w.left(i, h * score_width + c) + w.right(j, h * score_width + c);
      };
      std::vector<double> coefficients, gradients;
      auto sum = 0.0;
      for (auto const j : neighbours) {
        auto score = 0.0;
        for (std::int64_t c = 0; c < score_width; ++c)
          score += (w.is_dynamic ? w.attention(h, c) : 1) * leaky(z(j, c));
        coefficients.push_back(std::exp(score));
        sum += coefficients.back();
      }
      auto along = 0.0; // sum_j alpha_ij dalpha_ij
      for (std::size_t k = 0; k < neighbours.size(); ++k) {
        auto const j = neighbours[k];
        coefficients[k] /= sum;
        auto const kept = w.is_dropped(i, j, h) ? 0.0 : w.factor;
        auto dot = 0.0;
        for (std::int64_t c = h * width; c < (h + 1) * width; ++c) {
          result.p(i, c) += kept * coefficients[k] * w.values(j, c);
          result.d_values(j, c) += kept * coefficients[k] * w.gradient(i, c);
          dot += w.gradient(i, c) * w.values(j, c);
        }
        gradients.push_back(kept * dot);
        along += coefficients[k] * gradients[k];
      }
      for (std::size_t k = 0; k < neighbours.size(); ++k) {
        auto const j = neighbours[k];
        auto const g = coefficients[k] * (gradients[k] - along);
        for (std::int64_t c = 0; c < score_width; ++c) {
          auto const a = w.is_dynamic ? w.attention(h, c) : 1;
          result.d_left(i, h * score_width + c) += g * a * leaky_slope(z(j, c));
          result.d_right(j, h * score_width + c) += g * a * leaky_slope(z(j, c));
          if (w.is_dynamic) result.d_attention(h, c) += g * leaky(z(j, c));
        }
      }
    }
  return result;
}

class EdgesTest : public CellsFixture {
 protected:
  [[nodiscard]] std::vector<std::int64_t> own_vertices(Cells const& cells) const {
    return cells[at(grid_.coordinate(group_axes))];
  }
  /// Rows of these vertices.
  static Vector<double> rows_of(Dense const& whole, std::vector<std::int64_t> const& vertices) {
    std::vector<double> numbers;
    for (auto const vertex : vertices)
      for (std::int64_t c = 0; c < whole.columns; ++c)
        numbers.push_back(whole(vertex, c));
    return device_copy(numbers);
  }
  static Vector<double> zeros(std::int64_t count) {
    return Vector<double>("orthant::testing::zeros", at(count));
  }
  static void expect_rows(Vector<double> const& rows, std::vector<std::int64_t> const& vertices,
                          Dense const& whole, char const* what) {
    auto const numbers = host_copy(rows);
    auto largest = 0.0;
    for (std::size_t i = 0; i < vertices.size(); ++i)
      for (std::int64_t c = 0; c < whole.columns; ++c) {
        auto const error = std::abs(numbers(i * at(whole.columns) + at(c)) - whole(vertices[i], c));
        largest = std::isnan(error) ? HUGE_VAL : std::max(largest, error);
      }
    EXPECT_LE(largest, tolerance) << what;
  }

  void expect_moves(Cells const& cells, BlockRowsPlan const& plan, std::int64_t n);
  void expect_attention(Cells const& cells, Roles const& roles, Whole const& whole);
};

void EdgesTest::expect_moves(Cells const& cells, BlockRowsPlan const& plan, std::int64_t n) {
  auto const whole = integers(41, n, plan.stride);
  auto const axis = plan.side == BlockSide::columns ? plan.roles.c : plan.roles.a;
  auto const vertices = listed(cells, axis, plan.roles.b);
  BlockRows<double> const rows(grid_, plan, workspace_);
  auto const& steps = rows.steps();
  auto const part = steps.part.columns();
  auto const own = rows_of(whole, own_vertices(cells));
  auto step = step_of<double>(grid_);
  plan_bring(step, plan);
  plan_bring_back(step, plan);
  clear_ledgers(grid_);
  CountedPasses const passes(grid_);

  auto const block = rows.bring(exec_, own, zeros(steps.has_copy() ? steps.num_in_block() : 0));
  auto const numbers = host_copy(block);
  auto const first = plan.first_column + steps.first_head * plan.heads.width;
  auto errors = std::int64_t{0};
  for (std::size_t i = 0; i < vertices.size(); ++i)
    for (std::int64_t c = 0; c < part; ++c)
      errors += numbers(i * at(part) + at(c)) == whole(vertices[i], first + c) ? 0 : 1;
  EXPECT_EQ(errors, 0);

  // The block of rank r along the axis adds 1 + r times the row.
  auto const factor = static_cast<double>(
      1 + grid_.coordinate(plan.side == BlockSide::columns ? plan.roles.c : plan.roles.a));
  std::vector<double> multiples;
  for (std::size_t k = 0; k < vertices.size() * at(part); ++k)
    multiples.push_back(factor * numbers(k));
  auto const scaled = device_copy(multiples);
  if (!steps.has_copy()) Kokkos::deep_copy(own, scaled);
  rows.bring_back(exec_, steps.has_copy() ? scaled : own, own);
  EXPECT_EQ(counted_calls(grid_), planned_calls(step));
  EXPECT_EQ(passes.list(), passes_of(step));
  auto const ranks = grid_.size(axis);
  auto const sum = static_cast<double>(ranks * (ranks + 1) / 2);
  auto const expected = make_dense(n, plan.stride, [&](auto i, auto c) {
    auto const is_moved = c >= plan.first_column && c < plan.first_column + plan.heads.columns();
    return whole(i, c) * (is_moved ? sum : 1);
  });
  expect_rows(own, own_vertices(cells), expected, "sums");
}

TEST_P(EdgesTest, RowsComeToBlocksAndSumsGoBack) {
  for (auto const n : {std::int64_t{101}, std::int64_t{5}})
    for (auto const& cells : {contiguous(grid_.shape(), n), drawn_cells(grid_.shape(), n)})
      for (auto const& roles : all_roles())
        for (auto const side : {BlockSide::columns, BlockSide::rows})
          for (auto const heads : {Heads{3, 4}, Heads{1, 5}, Heads{8, 1}})
            for (auto const is_part : {false, true})
              expect_moves(cells,
                           {roles, sizes_of(cells, roles), side, heads, heads.columns() + (is_part ? 7 : 0),
                            is_part ? 3 : 0},
                           n);
}

void EdgesTest::expect_attention(Cells const& cells, Roles const& roles, Whole const& w) {
  auto const expected = attend(w);
  auto const row_vertices = listed(cells, roles.a, roles.b);
  auto const column_vertices = listed(cells, roles.c, roles.b);
  auto const own = own_vertices(cells);
  auto const block = make_edge_block(block_of_lists(w.pattern, row_vertices, column_vertices).csr);
  auto const sizes = sizes_of(cells, roles);
  Heads const score_heads{w.heads.count, w.is_dynamic ? w.heads.width : 1};
  auto const rows_at = [&](BlockSide side, Heads const& heads) {
    return BlockRows<double>(grid_, {roles, sizes, side, heads, heads.columns(), 0}, workspace_);
  };
  auto const left_rows = rows_at(BlockSide::rows, score_heads);
  auto const right_rows = rows_at(BlockSide::columns, score_heads);
  auto const p_rows = rows_at(BlockSide::rows, w.heads);
  auto const y_rows = rows_at(BlockSide::columns, w.heads);
  auto const heads = p_rows.steps().part;
  auto const first_head = p_rows.steps().first_head;
  reserve_edge_softmax(*workspace_, block.num_rows, heads.count);
  auto const bring = [&](BlockRows<double> const& rows, Dense const& whole) {
    return rows.bring(exec_, rows_of(whole, own), zeros(rows.steps().num_in_block()));
  };
  auto const expect_sum = [&](BlockRows<double> const& rows, Vector<double> const& addends,
                              Dense const& whole, char const* what) {
    auto const sums = rows.steps().has_copy() ? zeros(rows.steps().num_own * rows.steps().width) : addends;
    rows.bring_back(exec_, addends, sums);
    expect_rows(sums, own, whole, what);
  };

  auto const left = bring(left_rows, w.left);
  auto const right = bring(right_rows, w.right);
  auto const y = bring(y_rows, w.values);
  auto const dp = bring(p_rows, w.gradient);
  std::vector<double> own_attention;
  for (auto h = first_head; w.is_dynamic && h < first_head + heads.count; ++h)
    for (std::int64_t c = 0; c < heads.width; ++c)
      own_attention.push_back(w.attention(h, c));
  DynamicOperands<double> const operands{left, right, device_copy(own_attention)};
  auto const coefficients = zeros(block.num_edges() * heads.count);
  auto const gradient = zeros(block.num_edges() * heads.count);
  auto const counts = counts_of(block);
  auto step = step_of<double>(grid_);
  clear_ledgers(grid_);
  CountedPasses const passes(grid_);

  if (w.is_dynamic)
    dynamic_scores(exec_, grid_.passes(), block, heads, operands, coefficients);
  else
    static_scores(exec_, grid_.passes(), block, heads.count, left, right, coefficients);
  edge_softmax(exec_, grid_.over(roles.a), grid_.passes(), block, heads.count, coefficients, *workspace_);
  drop_edges(exec_, grid_.passes(), block, heads.count,
             {device_copy(row_vertices), device_copy(column_vertices), first_head, w.heads.count},
             1 - 1 / w.factor, runtime::RandomStream(7, runtime::Purpose::test), coefficients);
  EdgeWeights<double> const weights{coefficients, w.factor};
  auto const p = zeros(p_rows.steps().num_in_block());
  edge_spmm(exec_, block, heads, weights, y, p);
  edge_dots(exec_, block, heads, dp, y, gradient);
  edge_softmax_backward(exec_, grid_.over(roles.a), grid_.passes(), block, heads.count, weights, gradient,
                        *workspace_);
  auto const dy = zeros(y_rows.steps().num_in_block());
  edge_spmm_transposed(exec_, block, heads, weights, dp, dy);
  auto const d_left = zeros(left_rows.steps().num_in_block());
  auto const d_right = zeros(right_rows.steps().num_in_block());
  auto const terms = zeros(p_rows.steps().num_in_block());
  if (w.is_dynamic)
    dynamic_scores_backward(exec_, grid_.passes(), block, heads, operands, gradient,
                            {d_left, d_right, terms});
  else
    static_scores_backward(exec_, grid_.passes(), block, heads.count, left, right, gradient, d_left, d_right);

  if (w.is_dynamic)
    plan_dynamic_scores(step, counts, heads);
  else
    plan_static_scores(step, counts, heads.count);
  plan_edge_softmax(step, roles.a, counts, heads.count);
  plan_drop_edges(step, counts, heads.count);
  plan_edge_softmax_backward(step, roles.a, counts, heads.count);
  if (w.is_dynamic)
    plan_dynamic_scores_backward(step, counts, heads);
  else
    plan_static_scores_backward(step, counts, heads.count);
  EXPECT_EQ(counted_calls(grid_), planned_calls(step));
  EXPECT_EQ(passes.list(), passes_of(step));

  expect_sum(p_rows, p, expected.p, "P");
  expect_sum(y_rows, dy, expected.d_values, "dY");
  expect_sum(left_rows, d_left, expected.d_left, "d of rows");
  expect_sum(right_rows, d_right, expected.d_right, "d of columns");
  if (!w.is_dynamic) return;
  std::vector<double> sums(at(w.heads.columns()));
  auto const numbers = host_copy(terms);
  for (std::int64_t i = 0; i < block.num_rows; ++i)
    for (std::int64_t c = 0; c < heads.columns(); ++c)
      sums[at(first_head * heads.width + c)] += numbers(at(i * heads.columns() + c));
  runtime::all_reduce(runtime::host, grid_.group(), sums);
  for (std::int64_t h = 0; h < w.heads.count; ++h)
    for (std::int64_t c = 0; c < w.heads.width; ++c)
      EXPECT_NEAR(sums[at(h * w.heads.width + c)], expected.d_attention(h, c), tolerance) << "da";
}

TEST_P(EdgesTest, AttentionAndItsAdjointsEqualSerialLoops) {
  runtime::RandomStream const stream(7, runtime::Purpose::test);
  for (auto const n : {std::int64_t{37}, std::int64_t{3}})
    for (auto const heads : {Heads{3, 4}, Heads{1, 5}})
      for (auto const is_dynamic : {false, true}) {
        auto whole = whole_of(make_dense(n, n, SparseRecipe{51, false, false}), heads, is_dynamic);
        for (auto const probability : {0.0, 0.5}) {
          whole.factor = 1 / (1 - probability);
          whole.is_dropped = [&](std::int64_t i, std::int64_t j, std::int64_t h) {
            return stream.bernoulli(probability, static_cast<std::uint64_t>(i),
                                    static_cast<std::uint64_t>(j * heads.count + h));
          };
          for (auto const& cells : {contiguous(grid_.shape(), n), drawn_cells(grid_.shape(), n)})
            for (auto const& roles : all_roles())
              expect_attention(cells, roles, whole);
        }
      }
}

// One vertex has edges from all, and one to all: more than a thread of a device takes (kernels/list_teams.hpp).
TEST_P(EdgesTest, HubsAreSummedAsOtherRowsAre) {
  auto const n = std::int64_t{grid_.group().size() == 1 ? 2100 : 150};
  for (auto const heads : {Heads{3, 4}, Heads{1, 5}})
    for (auto const is_dynamic : {false, true}) {
      auto whole =
          whole_of(make_dense(n, n, [](auto i, auto j) { return i == 3 || j == 5 || i == j ? 1.0 : 0.0; }),
                   heads, is_dynamic);
      whole.is_dropped = [](auto, auto, auto) { return false; };
      expect_attention(contiguous(grid_.shape(), n), all_roles().front(), whole);
    }
}

TEST_P(EdgesTest, ScoresOfAnySizeHaveASoftmax) {
  // exp(1000) is no number, and all exponentials of -1000 would be 0.
  auto const block =
      make_edge_block(block_of_lists(make_dense(2, 2, [](auto, auto) { return 1.0; }), {0, 1}, {0, 1}).csr);
  auto const values = device_copy(std::vector<double>{1000, 1000, -1000, -1001});
  reserve_edge_softmax(*workspace_, 2, 1);
  edge_softmax(exec_, grid_.over(Axis::x), grid_.passes(), block, 1, values, *workspace_);
  auto const numbers = host_copy(values);
  auto const ranks = static_cast<double>(grid_.size(Axis::x)); // each has these edges
  EXPECT_NEAR(numbers(0), 1 / (2 * ranks), tolerance);
  EXPECT_NEAR(numbers(2), 1 / ((1 + std::exp(-1.0)) * ranks), tolerance);
}

// More columns than have their lists filled together.
TEST(EdgeBlockTest, ListsTheEdgesOfEachColumn) {
  std::vector<Offset> const row_offsets{0, 4, 4, 6, 9};
  std::vector<LocalColumn> const columns{0, 65535, 65536, 140000, 65536, 140000, 0, 1, 139999};
  constexpr std::int64_t num_columns = 140001;
  auto const block =
      make_edge_block(CsrMatrix<double>{4, num_columns, device_copy(row_offsets), device_copy(columns), {}});

  auto const offsets = host_copy(block.column_offsets);
  auto const rows = host_copy(block.rows);
  auto const places = host_copy(block.places);
  std::vector<std::array<std::int64_t, 3>> found; // column, row, place
  for (std::int64_t column = 0; column < num_columns; ++column)
    for (auto e = offsets(column); e < offsets(column + 1); ++e)
      found.push_back({column, rows(e), places(e)});

  std::vector<std::array<std::int64_t, 3>> const expected{{0, 0, 0},      {0, 3, 6},      {1, 3, 7},
                                                          {65535, 0, 1},  {65536, 0, 2},  {65536, 2, 4},
                                                          {139999, 3, 8}, {140000, 0, 3}, {140000, 2, 5}};
  EXPECT_EQ(found, expected);
}

INSTANTIATE_TEST_SUITE_P(AllGrids, EdgesTest, ::testing::ValuesIn(grids_3d(world_size())), GridName());

} // namespace
} // namespace orthant::testing
