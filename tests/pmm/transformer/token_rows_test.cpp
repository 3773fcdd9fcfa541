// SPDX-License-Identifier: Apache-2.0
//
// Norms of rows and feed-forward functions beside their definitions in double and figures of PyTorch 2.15 in fp64.
#include "pmm/rows/column_sums.hpp"
#include "pmm/token_rows/feed_forward.hpp"
#include "pmm/token_rows/row_norm.hpp"
#include "runtime/error.hpp"
#include "support/dist_checks.hpp"

#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

/// A matrix in the kernels' memory.
template<class T, class Number>
Matrix<T> matrix_of(std::int64_t rows, std::int64_t columns, Number const& number) {
  Matrix<T> result("orthant::testing::matrix", static_cast<std::size_t>(rows),
                   static_cast<std::size_t>(columns));
  auto const host = Kokkos::create_mirror_view(result);
  for (std::size_t i = 0; i < host.extent(0); ++i)
    for (std::size_t j = 0; j < host.extent(1); ++j)
      host(i, j) = static_cast<T>(number(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)));
  Kokkos::deep_copy(result, host);
  return result;
}
template<class T, class Number>
Vector<T> vector_of(std::int64_t length, Number const& number) {
  std::vector<T> numbers;
  for (std::int64_t j = 0; j < length; ++j)
    numbers.push_back(static_cast<T>(number(j)));
  return device_copy(numbers);
}
template<class View>
auto on_host(View const& view) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
}

/// One norm of rows x columns, forward and backward, with the columns dealt to `num_ranks`.
template<class T>
struct NormCase {
  RowNormSettings settings;
  std::int64_t rows, columns;
  Matrix<T> x, dy, y, dx;
  Vector<T> scale, shift, d_scale, d_shift;
  Residual residual = Residual::none;

  NormCase(RowNorm kind, std::int64_t num_rows, std::int64_t num_columns, double offset = 0)
      : settings{kind, num_columns, 1e-5},
        rows(num_rows),
        columns(num_columns),
        x(matrix_of<T>(rows, columns, [=](auto i, auto j) { return offset + 2 * small_real(21, i, j); })),
        dy(matrix_of<T>(rows, columns, [](auto i, auto j) { return small_real(22, i, j); })),
        y(matrix_of<T>(rows, columns, [](auto, auto) { return 77; })),
        dx(matrix_of<T>(rows, columns, [](auto i, auto j) { return small_real(25, i, j); })),
        scale(vector_of<T>(columns, [](auto j) { return 1 + small_real(23, j, 0) / 2; })),
        shift(
            vector_of<T>(kind == RowNorm::layer ? columns : 0, [](auto j) { return small_real(24, j, 0); })),
        d_scale(vector_of<T>(columns, [](auto) { return 77; })),
        d_shift(vector_of<T>(static_cast<std::int64_t>(shift.extent(0)), [](auto) { return 77; })) {}

  /// The columns that `rank` has.
  [[nodiscard]] Range part(std::int64_t num_ranks, std::int64_t rank) const {
    return runtime::balanced_range(columns, num_ranks, rank);
  }

  void run(std::int64_t num_ranks) {
    auto const per_row = sums_per_row(settings.kind);
    auto const num_sums = rows * per_row;
    auto const zeros = [](auto) { return 0; };
    struct Rank {
      Matrix<T> x, dy, y, dx;
      Vector<T> scale, shift, d_scale, d_shift, sums;
      RowNormState<T> state;
    };
    std::vector<Rank> ranks;
    auto const parts = num_ranks == 1 ? RowParts::whole : RowParts::summed;
    DefaultExec const exec;
    runtime::PassLedger passes;
    auto const total = vector_of<T>(num_sums, zeros);
    auto const sum_over_ranks = [&] { // as one all_reduce
      for (std::int64_t k = 0; k < num_sums; ++k) {
        T sum = 0;
        for (auto const& rank : ranks)
          sum += on_host(rank.sums)(static_cast<std::size_t>(k));
        Kokkos::deep_copy(Kokkos::subview(total, static_cast<std::size_t>(k)), sum);
      }
    };
    for (std::int64_t r = 0; r < num_ranks; ++r) {
      auto const mine = part(num_ranks, r);
      auto const cut = [&](Matrix<T> const& from) {
        auto const host = on_host(from);
        return matrix_of<T>(rows, mine.size(), [&](auto i, auto j) {
          return host(static_cast<std::size_t>(i), static_cast<std::size_t>(mine.begin + j));
        });
      };
      auto const cut_vector = [&](Vector<T> const& from) {
        auto const host = on_host(from);
        return vector_of<T>(from.extent(0) == 0 ? 0 : mine.size(),
                            [&](auto j) { return host(static_cast<std::size_t>(mine.begin + j)); });
      };
      ranks.push_back(
          {cut(x),
           cut(dy),
           cut(y),
           cut(dx),
           cut_vector(scale),
           cut_vector(shift),
           cut_vector(d_scale),
           cut_vector(d_shift),
           vector_of<T>(num_sums, zeros),
           {vector_of<T>(settings.kind == RowNorm::layer ? rows : 0, zeros), vector_of<T>(rows, zeros)}});
      if (parts == RowParts::summed)
        sum_row_moments(exec, passes, settings.kind, ranks.back().x, ranks.back().sums);
    }
    sum_over_ranks();
    for (auto& rank : ranks) {
      apply_row_norm(exec, passes, settings, parts, rank.x, total, rank.scale, rank.shift, rank.state,
                     rank.y);
      if (parts == RowParts::summed)
        sum_row_norm_gradient(exec, passes, settings.kind, rank.x, rank.scale, rank.state, rank.dy,
                              rank.sums);
    }
    sum_over_ranks();
    for (std::int64_t r = 0; r < num_ranks; ++r) {
      auto const& rank = ranks[static_cast<std::size_t>(r)];
      Workspace<T> work;
      reserve_column_sums(work, rows, rank.x.extent(1));
      row_norm_backward(exec, passes, settings, parts, residual, rank.x, rank.scale, rank.state, rank.dy,
                        total, rank.dx, rank.d_scale, rank.d_shift, work);
      auto const mine = part(num_ranks, r);
      auto const columns_of =
          std::pair(static_cast<std::size_t>(mine.begin), static_cast<std::size_t>(mine.end));
      Kokkos::deep_copy(Kokkos::subview(y, Kokkos::ALL, columns_of), rank.y);
      Kokkos::deep_copy(Kokkos::subview(dx, Kokkos::ALL, columns_of), rank.dx);
      Kokkos::deep_copy(Kokkos::subview(d_scale, columns_of), rank.d_scale);
      if (d_shift.extent(0) != 0) Kokkos::deep_copy(Kokkos::subview(d_shift, columns_of), rank.d_shift);
    }
  }

  /// Runs on that many ranks and compares with the definition in double.
  void expect_definition(std::int64_t num_ranks, double bound) {
    auto const before = on_host(matrix_of<double>(rows, columns, [&, old = on_host(dx)](auto i, auto j) {
      return residual == Residual::added ? old(static_cast<std::size_t>(i), static_cast<std::size_t>(j))
                                         : T{0};
    }));
    run(num_ranks);
    auto const hx = on_host(x), hdy = on_host(dy), hy = on_host(y), hdx = on_host(dx);
    auto const hscale = on_host(scale), hshift = on_host(shift), hd_scale = on_host(d_scale),
               hd_shift = on_host(d_shift);
    auto const n = static_cast<std::size_t>(columns);
    auto const width = static_cast<double>(columns);
    auto const is_layer = settings.kind == RowNorm::layer;
    std::vector<double> of_scale(n), of_shift(n);
    auto const what =
        std::to_string(rows) + " x " + std::to_string(columns) + " on " + std::to_string(num_ranks);
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
      auto mean = 0.0, square = 0.0, s = 0.0, t = 0.0;
      for (std::size_t j = 0; is_layer && j < n; ++j)
        mean += static_cast<double>(hx(i, j)) / width;
      for (std::size_t j = 0; j < n; ++j)
        square += (static_cast<double>(hx(i, j)) - mean) * (static_cast<double>(hx(i, j)) - mean) / width;
      auto const r = 1 / std::sqrt(square + settings.epsilon);
      auto const normed = [&](std::size_t j) { return (static_cast<double>(hx(i, j)) - mean) * r; };
      auto const scaled = [&](std::size_t j) {
        return static_cast<double>(hdy(i, j)) * static_cast<double>(hscale(j));
      };
      for (std::size_t j = 0; j < n; ++j) {
        s += is_layer ? scaled(j) : 0;
        t += scaled(j) * normed(j);
        of_scale[j] += static_cast<double>(hdy(i, j)) * normed(j);
        of_shift[j] += static_cast<double>(hdy(i, j));
      }
      for (std::size_t j = 0; j < n; ++j) {
        auto const expected =
            normed(j) * static_cast<double>(hscale(j)) + (is_layer ? static_cast<double>(hshift(j)) : 0);
        EXPECT_NEAR(static_cast<double>(hy(i, j)), expected, bound) << what << ": " << i << ", " << j;
        auto const gradient = before(i, j) + r * (scaled(j) - (s + normed(j) * t) / width);
        EXPECT_NEAR(static_cast<double>(hdx(i, j)), gradient, 4 * bound * (1 + r))
            << what << ": " << i << ", " << j;
      }
    }
    for (std::size_t j = 0; j < n; ++j) {
      EXPECT_NEAR(static_cast<double>(hd_scale(j)), of_scale[j], bound * static_cast<double>(rows)) << what;
      if (is_layer) {
        EXPECT_NEAR(static_cast<double>(hd_shift(j)), of_shift[j], bound * static_cast<double>(rows)) << what;
      }
    }
  }
};

template<class T>
class RowNormTest : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RowNormTest, Scalars);
template<class T>
constexpr double norm_bound =
    std::is_same_v<T, float> ? 4e-6 : 1e-14; // about 16 units in the last place of numbers near 2

TYPED_TEST(RowNormTest, EqualsTheDefinitionHoweverColumnsAreSplit) {
  for (auto const kind : {RowNorm::layer, RowNorm::rms})
    for (auto const residual : {Residual::none, Residual::added})
      for (std::int64_t const rows : {1, 5, 40})
        for (std::int64_t const columns : {4, 15, 16, 47, 128, 300, 600})
          for (std::int64_t const ranks : {1, 2, 3}) {
            NormCase<TypeParam> norm(kind, rows, columns);
            norm.residual = residual;
            norm.expect_definition(ranks, norm_bound<TypeParam>);
          }
}

TYPED_TEST(RowNormTest, ARankMayHaveNoColumnsOrRows) {
  NormCase<TypeParam> few(RowNorm::layer, 3, 2);
  few.expect_definition(3, 1e-4);
  NormCase<TypeParam> none(RowNorm::rms, 0, 8);
  none.run(1);
  EXPECT_EQ(on_host(none.d_scale)(3), TypeParam{0});
}

/// A mean of 1000 deviations: whole rows take the variance about the mean.
TYPED_TEST(RowNormTest, ALargeMeanCostsNoDigitsOfWholeRows) {
  NormCase<TypeParam> norm(RowNorm::layer, 3, 64, 1000);
  norm.expect_definition(1, std::is_same_v<TypeParam, float> ? 2e-3 : 1e-11); // the rounding of x - mean
}

double wave(std::int64_t i, std::int64_t j, double seed) {
  auto const x = static_cast<double>(i);
  auto const y = static_cast<double>(j);
  return std::sin(0.37 * x + 0.91 * y + 0.05 * x * y + seed);
}

/// layer_norm and rms_norm of PyTorch 2.15 in fp64, eps 1e-5 and 1e-6.
TEST(RowNorm, EqualsPyTorch) {
  struct Figures {
    RowNorm kind;
    double epsilon;
    std::array<double, 3> y, dx;
    std::vector<double> d_scale, d_shift;
  };
  for (auto const& figures :
       {Figures{RowNorm::layer,
                1e-5,
                {-0.48421089456740057, 1.49806314914065, -0.60476426232041813},
                {0.022569480676442433, -0.22280188888612601, -0.062585729892510433},
                {-2.5996905506103407, -0.46747044197273546, -2.7338253496657838, -3.3813321730463217,
                 -1.0269128282542752, -1.7169454892906393, -2.922178861120027},
                {2.4916499814871482, 0.2674585324137756, -2.118632851327019, -2.6475726824826458,
                 -0.93631191557281168, 1.4916047174464375, 2.5675773884856747}},
        Figures{RowNorm::rms,
                1e-6,
                {-1.1578895474097615, 1.6794559180435886, -0.55090404721130237},
                {-0.12421143578121718, -0.53296357917837467, -0.36280828407284915},
                {-2.7504945624953598, -0.45240690676178241, -2.5542008976034367, -3.200582768584487,
                 -1.0013983299363571, -1.850326708039844, -3.0924913398540923},
                {}}}) {
    NormCase<double> norm(figures.kind, 3, 7);
    norm.settings.epsilon = figures.epsilon;
    norm.x = matrix_of<double>(3, 7, [](auto i, auto j) { return wave(i, j, 5); });
    norm.dy = matrix_of<double>(3, 7, [](auto i, auto j) { return wave(i, j, 8); });
    norm.scale = vector_of<double>(7, [](auto j) { return 1 + wave(0, j, 6) / 2; });
    if (figures.kind == RowNorm::layer)
      norm.shift = vector_of<double>(7, [](auto j) { return wave(0, j, 7); });
    for (std::int64_t const ranks : {1, 3}) {
      norm.run(ranks);
      auto const y = on_host(norm.y), dx = on_host(norm.dx);
      for (std::size_t k = 0; k < 3; ++k) {
        EXPECT_NEAR(y(k, 3 * k), figures.y[k], 1e-14);
        EXPECT_NEAR(dx(k, 3 * k), figures.dx[k], 1e-14);
      }
      for (std::size_t j = 0; j < 7; ++j) {
        EXPECT_NEAR(on_host(norm.d_scale)(j), figures.d_scale[j], 1e-13);
        if (!figures.d_shift.empty()) {
          EXPECT_NEAR(on_host(norm.d_shift)(j), figures.d_shift[j], 1e-13);
        }
      }
    }
  }
}

/// gelu and silu(g) * 1.5 of PyTorch 2.15 in fp64, and their derivatives.
TEST(FeedForward, EqualsPyTorch) {
  std::vector<double> const at{-6, -3, -1.25, -0.1, 0, 0.2, 1, 2.5, 7};
  std::vector<double> const gelu_of{
      -5.9195258694799691e-09, -0.0040496940948903104, -0.13206221708356905, -0.046017216272297101, 0,
      0.11585194188782061,     0.84134474606854304,    2.4844758366855597,   6.9999999999910409};
  std::vector<double> const gelu_slope{
      -3.546870945402639e-08, -0.01194564720418392, -0.12266158306942215, 0.42047690797526982, 0.5,
      0.65746824823419414,    1.0833154705876864,   1.0376110859081451,   1.0000000000626632};
  std::vector<double> const swiglu_of{
      -0.02225360840971297, -0.21341642929905053, -0.41756276029745409, -0.071253121878159006, 0,
      0.1649501991937434,   1.0965878679450074,   3.4655318249203368,   10.490433962458795};
  std::vector<double> const gate_slope{
      -0.018489648887288268, -0.13215615902275443, 0.0094787326270313558, 0.67512481275265623, 0.75,
      0.89900596778227493,   1.3915057678072302,   1.64910166701229,      1.5081907455996779};
  auto const count = static_cast<std::int64_t>(at.size());
  auto const number = [&](auto j) { return at[static_cast<std::size_t>(j)]; };
  auto const z = matrix_of<double>(1, count, [&](auto, auto j) { return number(j); });
  auto const pairs =
      matrix_of<double>(1, 2 * count, [&](auto, auto j) { return j % 2 == 0 ? number(j / 2) : 1.5; });
  auto const ones = matrix_of<double>(1, count, [](auto, auto) { return 1; });
  auto const y = matrix_of<double>(1, count, [](auto, auto) { return 77; });
  auto const dz = matrix_of<double>(1, count, [](auto, auto) { return 77; });
  auto const d_pairs = matrix_of<double>(1, 2 * count, [](auto, auto) { return 77; });
  DefaultExec const exec;
  runtime::PassLedger passes;

  gelu(exec, passes, z, y);
  gelu_backward(exec, passes, z, ones, dz);
  for (std::size_t j = 0; j < at.size(); ++j) {
    EXPECT_NEAR(on_host(y)(0, j), gelu_of[j], 4e-16 * (1 + std::abs(at[j])));
    EXPECT_NEAR(on_host(dz)(0, j), gelu_slope[j], 1e-15);
  }
  swiglu(exec, passes, pairs, y);
  swiglu_backward(exec, passes, pairs, ones, d_pairs);
  for (std::size_t j = 0; j < at.size(); ++j) {
    EXPECT_NEAR(on_host(y)(0, j), swiglu_of[j], 4e-15);
    EXPECT_NEAR(on_host(d_pairs)(0, 2 * j), gate_slope[j], 2e-15);
    EXPECT_NEAR(on_host(d_pairs)(0, 2 * j + 1), swiglu_of[j] / 1.5, 4e-15);
  }
}

TEST(FeedForward, ArraysOfOtherSizesAreRefused) {
  DefaultExec const exec;
  runtime::PassLedger passes;
  Matrix<float> const three("orthant::testing::three", 2, 3), six("orthant::testing::six", 2, 6);
  EXPECT_THROW(gelu(exec, passes, three, six), runtime::Error);
  EXPECT_THROW(swiglu(exec, passes, three, three), runtime::Error);
  EXPECT_THROW(swiglu_backward(exec, passes, six, three, three), runtime::Error);
}

TEST(TokenRows, ListWhatTheyCount) {
  DefaultExec const exec;
  std::vector<runtime::LocalPass> counted;
  runtime::PassLedger passes;
  passes.list = &counted;
  Matrix<float> const x("orthant::testing::x", 4, 6), y("orthant::testing::y", 4, 6),
      half("orthant::testing::half", 4, 3);
  Vector<float> const columns("orthant::testing::columns", 6), rows("orthant::testing::rows", 4),
      sums("orthant::testing::sums", 8), none;
  StepPlan step({1, 1, 1, 1}, {}, sizeof(float));
  Workspace<float> work;
  reserve_column_sums(work, 4, 6);
  for (auto const kind : {RowNorm::layer, RowNorm::rms})
    for (auto const parts : {RowParts::whole, RowParts::summed}) {
      RowNormSettings const settings{kind, 6, 1e-5};
      RowNormState<float> const state{kind == RowNorm::layer ? rows : none, rows};
      auto const& shift = kind == RowNorm::layer ? columns : none;
      sum_row_moments(exec, passes, kind, x, sums);
      plan_sum_row_moments(step, kind, {4, 6});
      apply_row_norm(exec, passes, settings, parts, x, sums, columns, shift, state, y);
      plan_apply_row_norm(step, kind, parts, kind == RowNorm::layer, {4, 6});
      sum_row_norm_gradient(exec, passes, kind, x, columns, state, y, sums);
      plan_sum_row_norm_gradient(step, kind, {4, 6});
      row_norm_backward(exec, passes, settings, parts, Residual::added, x, columns, state, y, sums, y,
                        columns, shift, work);
      plan_row_norm_backward(step, kind, parts, Residual::added, kind == RowNorm::layer, {4, 6});
    }
  gelu(exec, passes, x, y);
  plan_gelu(step, 24);
  gelu_backward(exec, passes, x, y, y);
  plan_gelu_backward(step, 24);
  swiglu(exec, passes, x, half);
  plan_swiglu(step, 12);
  swiglu_backward(exec, passes, x, half, y);
  plan_swiglu_backward(step, 12);
  EXPECT_EQ(passes_of(step), counted);
}

} // namespace
} // namespace orthant::testing
