// SPDX-License-Identifier: Apache-2.0
//
// The kernels for tall products, those of every instruction set that this processor has: against sums in fp64, within the
// bound that tall_gemm_host.hpp gives; the same bits from all of them; nothing read or written beside the operands. Host only.
#include "pmm/tall_gemm/tall_gemm_host.hpp"
#include "runtime/range.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

namespace orthant::testing {
namespace {

using pmm::host_gemm::padded;
using pmm::host_gemm::Rows;
using pmm::host_gemm::supported_tall_kernels;
using pmm::host_gemm::TallKernels;
using pmm::host_gemm::TallProduct;

constexpr auto not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr auto eps = 0x1p-23;

/// A matrix with five columns of NaN beside it.
struct Numbers {
  std::int64_t num_rows, num_columns;
  std::vector<float> all;

  Numbers(std::int64_t rows, std::int64_t columns) : num_rows(rows), num_columns(columns) {
    all.assign(static_cast<std::size_t>(rows * stride()), not_a_number);
  }
  [[nodiscard]] std::int64_t stride() const { return num_columns + 5; }
  [[nodiscard]] float& at(std::int64_t i, std::int64_t j) {
    return all[static_cast<std::size_t>(i * stride() + j)];
  }
  [[nodiscard]] float at(std::int64_t i, std::int64_t j) const {
    return all[static_cast<std::size_t>(i * stride() + j)];
  }
  [[nodiscard]] Rows rows() { return {all.data(), stride()}; }
};

Numbers random(std::int64_t rows, std::int64_t columns, unsigned seed) {
  Numbers numbers(rows, columns);
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> number(-1, 1);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      numbers.at(i, j) = number(generator);
  return numbers;
}

/// From a cache line on.
struct Scratch {
  std::vector<float> all;
  explicit Scratch(std::int64_t count) : all(static_cast<std::size_t>(count + 16)) {}
  [[nodiscard]] float* begin() {
    auto const line = (reinterpret_cast<std::uintptr_t>(all.data()) + 63) / 64 * 64;
    return reinterpret_cast<float*>(line); // NOLINT
  }
};

void expect_untouched_beside(Numbers& c, std::string const& what) {
  for (std::int64_t i = 0; i < c.num_rows; ++i)
    for (auto j = c.num_columns; j < c.stride(); ++j)
      ASSERT_TRUE(std::isnan(c.at(i, j))) << what;
}

std::vector<float> rows_times(TallKernels const& kernels, Numbers& a, Numbers& b, bool is_transposed,
                              bool adds) {
  auto const n = is_transposed ? b.num_rows : b.num_columns;
  auto const k = a.num_columns;
  auto const what = fmt::format("{}: {} x {} x {}, transposed {}, adds {}", kernels.vectors, a.num_rows, n, k,
                                is_transposed, adds);
  Scratch packed(k * padded(n));
  kernels.pack(b.rows(), is_transposed, n, k, packed.begin());
  auto c = adds ? random(a.num_rows, n, 3) : Numbers(a.num_rows, n);
  Numbers const old = c;
  TallProduct const product{a.rows(), packed.begin(), c.rows(), n, k, adds};
  auto const middle = a.num_rows / 3; // any cut gives the same
  kernels.multiply_rows(product, 0, middle);
  kernels.multiply_rows(product, middle, a.num_rows);

  for (std::int64_t i = 0; i < a.num_rows; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      auto const before = adds ? static_cast<double>(old.at(i, j)) : 0.0;
      auto sum = before, size = std::abs(before);
      for (std::int64_t l = 0; l < k; ++l) {
        auto const term =
            static_cast<double>(a.at(i, l)) * static_cast<double>(is_transposed ? b.at(j, l) : b.at(l, j));
        sum += term;
        size += std::abs(term);
      }
      EXPECT_LE(std::abs(static_cast<double>(c.at(i, j)) - sum), static_cast<double>(k + 1) * eps * size)
          << what;
    }
  expect_untouched_beside(c, what);
  return c.all;
}

std::vector<float> terms_of(TallKernels const& kernels, Numbers& a, Numbers& b) {
  auto const num_terms = a.num_rows;
  auto const what =
      fmt::format("{}: {} terms, {} x {}", kernels.vectors, num_terms, a.num_columns, b.num_columns);
  auto const size = padded(a.num_columns) * padded(b.num_columns);
  Scratch sums(size);
  Scratch scratch(pmm::host_gemm::term_scratch);
  kernels.add_terms({a.rows(), b.rows(), sums.begin(), a.num_columns, b.num_columns}, 0, num_terms,
                    scratch.begin());

  for (std::int64_t i = 0; i < a.num_columns; ++i)
    for (std::int64_t j = 0; j < b.num_columns; ++j) {
      auto sum = 0.0, magnitude = 0.0;
      for (std::int64_t l = 0; l < num_terms; ++l) {
        auto const term = static_cast<double>(a.at(l, i)) * static_cast<double>(b.at(l, j));
        sum += term;
        magnitude += std::abs(term);
      }
      auto const bound = (128 + static_cast<double>(num_terms) / 128) * eps * magnitude;
      EXPECT_LE(std::abs(static_cast<double>(sums.begin()[i * padded(b.num_columns) + j]) - sum), bound)
          << what;
    }
  return {sums.begin(), sums.begin() + size};
}

/// Equal to the bit, NaN included.
void expect_same(std::vector<std::vector<float>> const& results) {
  for (auto const& result : results) {
    ASSERT_EQ(result.size(), results.front().size());
    EXPECT_EQ(std::memcmp(result.data(), results.front().data(), result.size() * sizeof(float)), 0);
  }
}

// Around the widths of panels and the rows of tiles.
constexpr std::array widths{1, 7, 8, 9, 16, 17, 47, 48, 64, 65, 128, 200};

TEST(TallGemm, RowsEqualSumsInDoublePrecision) {
  if (supported_tall_kernels().empty()) GTEST_SKIP() << "none for this processor";
  for (std::int64_t const n : widths)
    for (auto const& [m, k] : std::initializer_list<std::pair<int, int>>{{1, 1}, {5, 3}, {77, 47}, {50, 300}})
      for (auto const is_transposed : {false, true})
        for (auto const adds : {false, true}) {
          auto a = random(m, k, 1);
          auto b = is_transposed ? random(n, k, 2) : random(k, n, 2);
          std::vector<std::vector<float>> results;
          for (auto const& kernels : supported_tall_kernels())
            results.push_back(rows_times(kernels, a, b, is_transposed, adds));
          expect_same(results);
        }
}

TEST(TallGemm, TermsEqualSumsInDoublePrecision) {
  if (supported_tall_kernels().empty()) GTEST_SKIP() << "none for this processor";
  for (std::int64_t const n : widths)
    for (auto const& [m, k] :
         std::initializer_list<std::pair<int, int>>{{1, 1}, {5, 127}, {47, 128}, {16, 129}, {100, 300}}) {
      auto a = random(k, m, 1);
      auto b = random(k, n, 2);
      std::vector<std::vector<float>> results;
      for (auto const& kernels : supported_tall_kernels())
        results.push_back(terms_of(kernels, a, b));
      expect_same(results);
    }
}

} // namespace
} // namespace orthant::testing
