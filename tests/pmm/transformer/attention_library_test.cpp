// SPDX-License-Identifier: Apache-2.0
//
// Attention of devices in bf16, through the vendor's library where it is there, beside the own kernels in fp64. A program of its own,
// because the arithmetic of products is chosen once.
#include "pmm/attention/attention.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "support/dist_checks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Vector;

constexpr double unit = 0x1p-8;

template<class T>
Vector<T> numbers(std::uint64_t seed, std::int64_t count) {
  std::vector<T> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(static_cast<T>(float(runtime::Bf16Number(static_cast<float>(small_real(seed, i, 0))))));
  return device_copy(all);
}

/// Columns of a matrix of rows of `stride` numbers.
template<class T>
Panel<T> panel(Vector<T> const& whole, std::int64_t rows, std::int64_t stride, std::int64_t first,
               std::int64_t columns) {
  return Panel<T>(as_matrix(whole, rows, stride)).columns({first, first + columns});
}

template<class T>
std::vector<double> on_host(Vector<T> const& numbers) {
  auto const host = host_copy(numbers);
  return std::vector<double>(host.data(), host.data() + host.size());
}

/// o, and dq, dk and dv side by side.
template<class T>
std::array<std::vector<double>, 2> attend(AttentionShape const& n) {
  auto const row = n.query_columns() + 2 * n.key_columns();
  auto const qkv = numbers<T>(71, n.num_tokens() * row);
  auto const d_out = numbers<T>(72, n.num_tokens() * n.query_columns());
  Vector<T> const out("orthant::testing::out", d_out.extent(0));
  Vector<T> const gradients("orthant::testing::gradients", qkv.extent(0));
  Vector<T> const sums("orthant::testing::sums", static_cast<std::size_t>(n.num_row_numbers()));
  Vector<T> const terms("orthant::testing::terms", static_cast<std::size_t>(n.num_row_numbers()));
  auto const operands = [&](Vector<T> const& whole) {
    return AttentionOperands<T>{
        panel(whole, n.num_tokens(), row, 0, n.query_columns()),
        panel(whole, n.num_tokens(), row, n.query_columns(), n.key_columns()),
        panel(whole, n.num_tokens(), row, n.query_columns() + n.key_columns(), n.key_columns())};
  };
  auto const rows = [&](Vector<T> const& whole) {
    return panel(whole, n.num_tokens(), n.query_columns(), 0, n.query_columns());
  };
  runtime::DefaultExec const exec;
  runtime::PassLedger passes;
  attention_forward(exec, passes, n, operands(qkv), rows(out), sums);
  attention_backward(exec, passes, n, operands(qkv), rows(out), sums, rows(d_out), operands(gradients),
                     terms);
  exec.fence();
  return {on_host(out), on_host(gradients)};
}

/// Chosen once, before the first product.
bool rounds_to_bf16() {
  static auto const is_chosen = [] {
    if (has_gemm_math(GemmMath::bf16)) set_gemm_math(GemmMath::bf16);
    return has_gemm_math(GemmMath::bf16);
  }();
  return is_chosen;
}

TEST(AttentionLibrary, IsWithinTheRoundingOfItsFormatAndRepeats) {
  if (!rounds_to_bf16()) GTEST_SKIP() << "hosts attend in fp32";
  for (auto const& shape : {AttentionShape{2, 200, 4, 2, 64}, AttentionShape{1, 128, 3, 3, 128},
                            AttentionShape{3, 37, 2, 2, 32}, AttentionShape{2, 64, 2, 2, 24}}) {
    auto const right = attend<double>(shape);
    auto const found = attend<float>(shape);
    EXPECT_EQ(found, attend<float>(shape)) << "the same bits";
    for (std::size_t part = 0; part < right.size(); ++part) {
      auto largest = 0.0, worst = 0.0;
      for (std::size_t i = 0; i < right[part].size(); ++i) {
        largest = std::max(largest, std::abs(right[part][i]));
        worst = std::max(worst, std::abs(found[part][i] - right[part][i]));
      }
      if (worst < 0x1p-16 * largest) GTEST_SKIP() << "cuDNN is not here: the own kernels did it, in fp32";
      EXPECT_LE(worst, 4 * unit * largest) << "heads of " << shape.head_dim << ", result " << part;
      EXPECT_GT(largest, 0);
    }
  }
}

// Every form, rows that begin anywhere, parts of wider matrices, growing sizes, and sums that are added to.
TEST(RoundedProducts, AreWithinTheRoundingOfTheirOperands) {
  if (!rounds_to_bf16()) GTEST_SKIP() << "hosts multiply in fp32";
  runtime::DefaultExec const exec;
  for (auto const& [m, n, k] :
       {std::array<std::int64_t, 3>{3, 5, 7}, {64, 47, 100}, {130, 128, 257}, {17, 1, 33}})
    for (auto const transpose_a : {Transpose::no, Transpose::yes})
      for (auto const transpose_b : {Transpose::no, Transpose::yes})
        for (auto const beta : {0.0F, 1.0F}) {
          auto const is_a_turned = transpose_a == Transpose::yes, is_b_turned = transpose_b == Transpose::yes;
          auto const a_rows = is_a_turned ? k : m, a_columns = is_a_turned ? m : k;
          auto const b_rows = is_b_turned ? n : k, b_columns = is_b_turned ? k : n;
          auto const a = numbers<float>(81, a_rows * (a_columns + 3));
          auto const b = numbers<float>(82, b_rows * b_columns);
          auto const c = numbers<float>(83, m * n);
          auto const before = on_host(c);
          local_gemm(exec, 0.5F, transpose_a, panel(a, a_rows, a_columns + 3, 2, a_columns), transpose_b,
                     panel(b, b_rows, b_columns, 0, b_columns), beta, panel(c, m, n, 0, n));
          exec.fence();
          auto const x = on_host(a), y = on_host(b), found = on_host(c);
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
              auto sum = 0.0;
              for (std::int64_t l = 0; l < k; ++l)
                sum += x[static_cast<std::size_t>(
                           (is_a_turned ? l * (a_columns + 3) + i : i * (a_columns + 3) + l) + 2)] *
                       y[static_cast<std::size_t>(is_b_turned ? j * b_columns + l : l * b_columns + j)];
              auto const place = static_cast<std::size_t>(i * n + j);
              // The operands are numbers of bf16: nothing but sums in fp32 is rounded.
              ASSERT_NEAR(found[place], 0.5 * sum + static_cast<double>(beta) * before[place],
                          static_cast<double>(k + 2) * 0x1p-22)
                  << m << " x " << n << " x " << k << ", beta " << beta;
            }
        }
}

} // namespace
} // namespace orthant::testing
