// SPDX-License-Identifier: Apache-2.0
//
// Dense products of one rank: panels of larger matrices, tall operands, empty extents.
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "pmm/local_arrays.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

TEST(LocalGemm, EqualsSerialLoopsForEveryTransposeOnPanels) {
  // A, B and C are parts of the columns of larger matrices.
  auto const whole = [](std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
    return make_dense(rows, columns, [seed](auto i, auto j) { return small_integer(seed, i, j); });
  };
  auto const part = [](Dense const& matrix, runtime::Range rows, runtime::Range columns) {
    return make_dense(rows.size(), columns.size(),
                      [&](auto i, auto j) { return matrix(rows.begin + i, columns.begin + j); });
  };
  for (auto const ta : {Transpose::no, Transpose::yes})
    for (auto const tb : {Transpose::no, Transpose::yes}) {
      auto const a = whole(1, 20, 21);
      auto const b = whole(2, 22, 23);
      auto const c = whole(3, 11, 13);
      auto const a_rows = ta == Transpose::no ? runtime::Range{2, 10} : runtime::Range{2, 9}; // 8 x 7
      auto const a_columns = ta == Transpose::no ? runtime::Range{3, 10} : runtime::Range{3, 11};
      auto const b_rows = tb == Transpose::no ? runtime::Range{1, 8} : runtime::Range{1, 6}; // 7 x 5
      auto const b_columns = tb == Transpose::no ? runtime::Range{4, 9} : runtime::Range{4, 11};
      auto const device_a = device_matrix<double>(a);
      auto const device_b = device_matrix<double>(b);
      auto const device_c = device_matrix<double>(c);

      local_gemm<double>(DefaultExec(), 2, ta, Panel<double>(device_a).rows(a_rows).columns(a_columns), tb,
                         Panel<double>(device_b).rows(b_rows).columns(b_columns), 3,
                         Panel<double>(device_c).rows({1, 9}).columns({2, 7}));

      auto const op_a = part(a, a_rows, a_columns);
      auto const op_b = part(b, b_rows, b_columns);
      auto const ab = product(ta == Transpose::no ? op_a : transposed(op_a),
                              tb == Transpose::no ? op_b : transposed(op_b));
      auto expected = c;
      for (std::int64_t i = 0; i < 8; ++i)
        for (std::int64_t j = 0; j < 5; ++j)
          expected(1 + i, 2 + j) = 2 * ab(i, j) + 3 * c(1 + i, 2 + j);
      expect_equal(device_c, expected, "panels");
    }
}

template<class T>
void expect_tall_products() {
  // Long enough to be cut in pieces, whole and not; integers, so that any order of the sums is exact.
  auto const whole = [](std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
    return make_dense(rows, columns, [seed](auto i, auto j) { return small_integer(seed, i, j); });
  };
  for (auto const length : {95, 96, 97, 1000, 2017, 2305})
    for (auto const width : {1, 47, 128}) {
      auto const a = whole(1, length, 100);
      auto const b = whole(2, 100, width);
      auto const c = whole(3, length, width);
      auto const what = std::to_string(length) + " x 100 and " + std::to_string(width);

      auto const product_of = device_matrix<T>(c);
      local_gemm<T>(DefaultExec(), 1, Transpose::no, device_matrix<T>(a), Transpose::no, device_matrix<T>(b),
                    0, product_of);
      expect_equal(product_of, product(a, b), what + ", A B");

      auto const left_grad = device_matrix<T>(c);
      local_gemm<T>(DefaultExec(), 1, Transpose::no, device_matrix<T>(a), Transpose::yes,
                    device_matrix<T>(transposed(b)), 1, left_grad);
      auto sum = product(a, b);
      for (std::int64_t i = 0; i < length; ++i)
        for (std::int64_t j = 0; j < width; ++j)
          sum(i, j) += c(i, j);
      expect_equal(left_grad, sum, what + ", C + A B^T");

      auto const right_grad = device_matrix<T>(make_dense(100, width, [](auto, auto) { return 5.0; }));
      for (auto const* which : {", A^T C", ", A^T C again"}) { // on a device the first may try two ways
        local_gemm<T>(DefaultExec(), 1, Transpose::yes, device_matrix<T>(a), Transpose::no,
                      device_matrix<T>(c), 0, right_grad);
        expect_equal(right_grad, product(transposed(a), c), what + which);
      }
    }
}

TEST(LocalGemm, TallProductsEqualSerialLoops) {
  expect_tall_products<float>();
  expect_tall_products<double>();
}

TEST(LocalGemm, AnEmptyInnerExtentGivesZero) {
  auto const c = device_matrix<float>(make_dense(3, 4, [](auto, auto) { return HUGE_VAL; }));

  local_gemm<float>(DefaultExec(), 1, Transpose::no, device_matrix<float>(Dense(3, 0)), Transpose::no,
                    device_matrix<float>(Dense(0, 4)), 0, c);

  expect_equal(c, Dense(3, 4), "no inner extent");
}

TEST(LocalGemm, TheHostMultipliesInFp32AndBf16) {
  if constexpr (!Kokkos::SpaceAccessibility<Kokkos::HostSpace, DefaultExec::memory_space>::accessible)
    GTEST_SKIP() << "products are a device's here";

  EXPECT_NO_THROW(set_gemm_math(GemmMath::fp32));
  EXPECT_TRUE(has_gemm_math(GemmMath::fp32));
  EXPECT_TRUE(has_gemm_math(GemmMath::bf16));
  EXPECT_FALSE(has_gemm_math(GemmMath::tf32));
  EXPECT_THROW(set_gemm_math(GemmMath::tf32), runtime::Error);
  EXPECT_EQ(chosen_gemm_math(), GemmMath::fp32);
}

TEST(LocalGemm, ExtentsThatDisagreeAreRefused) {
  auto const a = device_matrix<float>(Dense(3, 4));
  EXPECT_THROW(local_gemm<float>(DefaultExec(), 1, Transpose::no, a, Transpose::no, a, 0, a), runtime::Error);
}

} // namespace
} // namespace orthant::testing
