// SPDX-License-Identifier: Apache-2.0
//
// 16-bit operands of sparse products on a host, in every instruction set: all 65,536 numbers are widened exactly,
// arrays are rounded as single numbers are, and the error of a product is within its bound.
#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/rounding.hpp"
#include "pmm/spmm/local_spmm.hpp"
#include "pmm/spmm/local_spmm_host.hpp"
#include "runtime/numbers/formats.hpp"
#include "support/dist_checks.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Bf16Number;
using runtime::Fp16Number;

template<class Number>
class RoundedOperands : public ::testing::Test {};
using Numbers = ::testing::Types<Bf16Number, Fp16Number>;
TYPED_TEST_SUITE(RoundedOperands, Numbers);

template<class Number>
constexpr double unit = std::is_same_v<Number, Bf16Number> ? 0x1p-8 : 0x1p-11;

TYPED_TEST(RoundedOperands, EveryNumberIsWidenedExactlyInEveryInstructionSet) {
  using Number = TypeParam;
  if (!runs_on_host) GTEST_SKIP() << "kernels of hosts";
  constexpr std::int64_t num_codes = 1 << 16;
  std::vector<Number> b(num_codes);
  for (std::size_t code = 0; code < b.size(); ++code)
    b[code].bits = static_cast<std::uint16_t>(code);
  for (auto const& multiply : detail::supported_spmm_rows<float, Number>())
    for (std::int64_t const width : {1, 4, 8, 16, 64}) { // divide the number of codes
      auto const num_rows = num_codes / width;
      std::vector<std::int64_t> offsets(static_cast<std::size_t>(num_rows) + 1);
      std::vector<std::int32_t> columns(static_cast<std::size_t>(num_rows));
      std::iota(offsets.begin(), offsets.end(), std::int64_t{0});
      std::iota(columns.begin(), columns.end(), 0);
      std::vector<float> c(static_cast<std::size_t>(num_codes), 12345.0F);
      detail::HostSpmm<float, Number> product{.num_rows = num_rows,
                                              .num_columns = num_rows,
                                              .row_offsets = offsets.data(),
                                              .columns = columns.data(),
                                              .b = b.data(),
                                              .b_stride = width,
                                              .c = c.data(),
                                              .c_stride = width,
                                              .width = static_cast<std::size_t>(width)};

      multiply(product, 0, num_rows);

      for (std::size_t i = 0; i < c.size(); ++i) {
        float const expected = 0.0F + b[i]; // -0 is added to 0
        ASSERT_TRUE(std::isnan(expected)
                        ? std::isnan(c[i])
                        : std::bit_cast<std::uint32_t>(c[i]) == std::bit_cast<std::uint32_t>(expected))
            << "code " << i << ", width " << width << ": " << c[i] << " for " << expected;
      }
    }
}

TYPED_TEST(RoundedOperands, ResultsAreRoundedOnceAtEveryWidthAndInEveryInstructionSet) {
  using Number = TypeParam;
  if (!runs_on_host) GTEST_SKIP() << "kernels of hosts";
  constexpr std::int64_t num_rows = 9, num_columns = 5;
  std::vector<std::int64_t> const offsets{0, 3, 3, 4, 9, 12, 14, 19, 20, 22};
  std::vector<std::int32_t> const columns{0, 2, 4, 1, 0, 1, 2, 3, 4, 0, 2, 3, 1, 4, 0, 1, 2, 3, 4, 2, 0, 3};
  for (auto const& multiply : detail::supported_spmm_rows<float, Number>())
    for (std::int64_t width = 1; width < 300; width += width < 70 ? 1 : 37) {
      std::vector<Number> b;
      for (std::int64_t i = 0; i < num_columns * width; ++i)
        b.push_back(Number(static_cast<float>(small_real(91, i, 0))));
      auto const size = static_cast<std::size_t>(num_rows * width);
      std::vector<float> c(size, 12345.0F);
      std::vector<Number> rounded(size, Number(12345.0F));
      detail::HostSpmm<float, Number> product{.num_rows = num_rows,
                                              .num_columns = num_columns,
                                              .row_offsets = offsets.data(),
                                              .columns = columns.data(),
                                              .b = b.data(),
                                              .b_stride = width,
                                              .c = c.data(),
                                              .c_stride = width,
                                              .width = static_cast<std::size_t>(width)};
      multiply(product, 0, num_rows);
      product.c = nullptr;
      product.rounded_c = rounded.data();

      multiply(product, 0, num_rows);

      for (std::size_t i = 0; i < size; ++i)
        ASSERT_EQ(rounded[i].bits, Number(c[i]).bits) << "width " << width << ", number " << i;
    }
}

TYPED_TEST(RoundedOperands, ArraysAreRoundedAsNumbersAre) {
  using Number = TypeParam;
  std::vector<float> values{0.0F,
                            -0.0F,
                            65504.0F,
                            -65504.0F,
                            65519.0F,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            0x1p-24F,
                            0x1p-25F,
                            0x1.8p-25F,
                            0x1p-14F,
                            std::numeric_limits<float>::denorm_min()};
  for (std::uint32_t i = 0; i < 100'000; ++i) { // of all exponents whose numbers fit
    auto const value = std::bit_cast<float>(i * 42949U);
    if (std::abs(value) < 65504.0F) values.push_back(value);
  }
  auto const from = device_copy(values);
  runtime::Vector<Number> const to("orthant::testing::rounded", values.size());

  round_numbers(DefaultExec(), from, to);

  auto const found = host_copy(to);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(found(i).bits, Number(values[i]).bits) << values[i];
  for (auto const& arrays : runtime::supported_number16_arrays<Number>()) {
    std::vector<Number> rounded(values.size());
    std::vector<float> widened(values.size()), sums(values.size(), 1.0F);

    EXPECT_TRUE(arrays.narrow(values.data(), rounded.data(), values.size()));
    arrays.widen(rounded.data(), widened.data(), values.size());
    arrays.add(rounded.data(), sums.data(), values.size());

    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(rounded[i].bits, Number(values[i]).bits) << values[i];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(widened[i]), std::bit_cast<std::uint32_t>(float(rounded[i])));
      ASSERT_EQ(sums[i], 1.0F + float(rounded[i])) << values[i];
    }
  }
}

TYPED_TEST(RoundedOperands, WhatDoesNotFitIsAnError) {
  using Number = TypeParam;
  if (!runs_on_host) GTEST_SKIP() << "a device does not look";
  for (auto const value : {65520.0F, -1e9F}) {
    auto const from = device_copy(std::vector<float>{1.0F, value, 2.0F});
    runtime::Vector<Number> const to("orthant::testing::rounded", 3);
    if (std::is_same_v<Number, Bf16Number>) {
      EXPECT_NO_THROW(round_numbers(DefaultExec(), from, to));
    } else {
      EXPECT_THROW(round_numbers(DefaultExec(), from, to), runtime::Error);
    }
    runtime::Vector<Number> const longer("orthant::testing::rounded", 4);
    EXPECT_THROW(round_numbers(DefaultExec(), from, longer), runtime::Error);
  }
}

// Of reals, and of a row that is summed in blocks (long_sums.hpp).
TYPED_TEST(RoundedOperands, AProductIsWithinItsBound) {
  using Number = TypeParam;
  std::int64_t const num_columns = 40;
  for (std::int64_t const width : {1, 5, 47, 128})
    for (auto const length : {std::int64_t{30}, (std::int64_t{1} << 20) + 77}) {
      std::vector<runtime::LocalColumn> columns(static_cast<std::size_t>(length));
      std::vector<float> values(columns.size());
      for (std::size_t k = 0; k < columns.size(); ++k) {
        columns[k] = static_cast<runtime::LocalColumn>(static_cast<std::int64_t>(k) % num_columns);
        values[k] = static_cast<float>(small_real(51, static_cast<std::int64_t>(k), 0));
      }
      if (length > 1000 && width > 5) continue;
      SparseBlock<float> block;
      block.csr = {1, num_columns, device_copy(std::vector<runtime::Offset>{0, length}), device_copy(columns),
                   device_copy(values)};
      std::vector<float> dense(static_cast<std::size_t>(num_columns * width));
      for (std::size_t i = 0; i < dense.size(); ++i)
        dense[i] = static_cast<float>(small_real(52, static_cast<std::int64_t>(i), 1));
      runtime::Vector<Number> const b("orthant::testing::b", dense.size());
      round_numbers(DefaultExec(), device_copy(dense), b);
      runtime::Matrix<float> const c("orthant::testing::c", 1, static_cast<std::size_t>(width));

      LocalSpmm<float>(block).apply(DefaultExec(), {0, 1}, as_matrix(b, num_columns, width), c);

      DefaultExec().fence();
      auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, c);
      auto const host_b = host_copy(b);
      for (std::int64_t j = 0; j < width; ++j) {
        auto sum = 0.0, magnitude = 0.0;
        for (std::size_t k = 0; k < columns.size(); ++k) {
          auto const x = double{values[k]} * double{dense[static_cast<std::size_t>(columns[k] * width + j)]};
          sum += x;
          magnitude += std::abs(x);
        }
        auto const terms = static_cast<double>(std::min(length, std::int64_t{1} << 20));
        EXPECT_NEAR(found(0, static_cast<std::size_t>(j)), sum, (unit<Number> + terms * 0x1p-23) * magnitude);
        if (length < 1000) { // and nothing but the operand was rounded to 16 bits
          auto rounded = 0.0;
          for (std::size_t k = 0; k < columns.size(); ++k)
            rounded +=
                double{values[k]} * double{float{host_b(static_cast<std::size_t>(columns[k] * width + j))}};
          EXPECT_NEAR(found(0, static_cast<std::size_t>(j)), rounded, terms * 0x1p-23 * magnitude);
        }
      }
    }
}

} // namespace
} // namespace orthant::testing
