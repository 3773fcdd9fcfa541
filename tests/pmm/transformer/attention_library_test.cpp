// SPDX-License-Identifier: Apache-2.0
//
// Attention of devices in bf16, through the vendor's library where it is there, beside the own kernels in fp64. A program of its own,
// because the arithmetic of products is chosen once.
#include "pmm/attention/attention.hpp"
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

template<class T>
Panel<T> panel(Vector<T> const& whole, std::int64_t rows, std::int64_t stride, std::int64_t first,
               std::int64_t columns) {
  Panel<T> part;
  part.data = whole.data() + first;
  part.num_rows = rows;
  part.num_columns = columns;
  part.row_stride = stride;
  return part;
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

TEST(AttentionLibrary, IsWithinTheRoundingOfItsFormatAndRepeats) {
  if (!has_gemm_math(GemmMath::bf16)) GTEST_SKIP() << "hosts attend in fp32";
  set_gemm_math(GemmMath::bf16);
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
      EXPECT_LE(worst, 4 * unit * largest) << "heads of " << shape.head_dim << ", result " << part;
      EXPECT_GT(largest, 0);
    }
  }
}

} // namespace
} // namespace orthant::testing
