// SPDX-License-Identifier: Apache-2.0
//
// Products of one rank whose operands have 16 bits: transposes, panels of larger matrices, extents around the tiles
// of the host, empty ones, and when a number is rounded.
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "support/reference.hpp"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Bf16Number;
using runtime::Fp16Number;
using runtime::Matrix;
using runtime::SumOf;

template<class T>
Matrix<T> on_device(Dense const& whole) {
  Matrix<T> matrix("orthant::testing::on_device", static_cast<std::size_t>(whole.rows),
                   static_cast<std::size_t>(whole.columns));
  auto const host = Kokkos::create_mirror_view(matrix);
  for (std::size_t i = 0; i < whole.numbers.size(); ++i)
    host.data()[i] = T(static_cast<SumOf<T>>(whole.numbers[i]));
  Kokkos::deep_copy(matrix, host);
  return matrix;
}

/// `expected` is rounded to T.
template<class T>
void expect_equal(Matrix<T> const& matrix, Dense const& expected, std::string const& what) {
  runtime::DefaultExec().fence();
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, matrix);
  for (std::size_t i = 0; i < expected.numbers.size(); ++i)
    ASSERT_EQ(static_cast<double>(host.data()[i]),
              static_cast<double>(T(static_cast<SumOf<T>>(expected.numbers[i]))))
        << what << ", number " << i;
}

Dense integer_matrix(std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
  return make_dense(rows, columns, [seed](auto i, auto j) { return small_integer(seed, i, j); });
}

/// C := 2 op(A) op(B) + beta C on panels: A, B and C are parts of larger matrices, whose other numbers stay.
template<class Operand, class Result>
void expect_product(std::array<std::int64_t, 3> const& extents, Transpose ta, Transpose tb, float beta) {
  constexpr std::int64_t wider = 3;
  auto const [m, n, k] = extents;
  auto const a = integer_matrix(1, ta == Transpose::yes ? k : m, ta == Transpose::yes ? m : k);
  auto const b = integer_matrix(2, tb == Transpose::yes ? n : k, tb == Transpose::yes ? k : n);
  auto const c = integer_matrix(3, m, n + wider);
  auto const widened = [](Dense const& part) {
    return make_dense(part.rows, part.columns + wider,
                      [&](auto i, auto j) { return j < wider ? 77.0 : part(i, j - wider); });
  };
  auto const panel = []<class T>(Matrix<T> const& matrix) {
    return Panel<T>(matrix).columns({wider, static_cast<std::int64_t>(matrix.extent(1))});
  };
  auto const result = on_device<Result>(c);
  auto const left = on_device<Operand>(widened(a));
  auto const right = on_device<Operand>(widened(b));

  local_gemm<Operand, Result>({}, 2, ta, panel(left), tb, panel(right), beta, panel(result));

  auto const ab = product(ta == Transpose::yes ? transposed(a) : a, tb == Transpose::yes ? transposed(b) : b);
  auto expected = c;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      expected(i, wider + j) = 2 * ab(i, j) + static_cast<double>(beta) * c(i, wider + j);
  expect_equal(result, expected,
               std::to_string(m) + " x " + std::to_string(n) + ", " + std::to_string(k) + " terms");
}

template<class Operand, class Result>
void expect_every_product() {
  for (auto const ta : {Transpose::no, Transpose::yes})
    for (auto const tb : {Transpose::no, Transpose::yes})
      for (auto const beta : {0.0F, 1.0F, 3.0F}) {
        expect_product<Operand, Result>({8, 5, 7}, ta, tb, beta);
        expect_product<Operand, Result>({255, 3, 257}, ta, tb, beta); // around tiles of 256
        expect_product<Operand, Result>({257, 256, 4}, ta, tb, beta);
        expect_product<Operand, Result>({2, 513, 512}, ta, tb, beta);
        expect_product<Operand, Result>({3, 4, 0}, ta, tb, beta);
        expect_product<Operand, Result>({0, 4, 3}, ta, tb, beta);
        expect_product<Operand, Result>({4, 0, 3}, ta, tb, beta);
      }
}

TEST(TypedGemm, EqualsSerialLoopsRoundedOnce) { // sums are integer_matrix below 2^24, exact in fp32
  expect_every_product<Bf16Number, float>();
  expect_every_product<Bf16Number, Bf16Number>();
  expect_every_product<Fp16Number, float>();
  expect_every_product<Fp16Number, Fp16Number>();
}

/// 2^8 and 2^8 ones: a sum in bf16 would stay at 2^8.
TEST(TypedGemm, SumsAreInSinglePrecision) {
  auto const ones = [](std::int64_t rows, std::int64_t columns) {
    return make_dense(rows, columns, [](auto i, auto j) { return i + j == 0 ? 256.0 : 1.0; });
  };
  auto const left = ones(1, 257);
  auto const right = make_dense(257, 1, [](auto, auto) { return 1.0; });
  auto const result = on_device<Bf16Number>(Dense(1, 1));

  local_gemm<Bf16Number>({}, 1, Transpose::no, on_device<Bf16Number>(left), Transpose::no,
                         on_device<Bf16Number>(right), 0, result);

  expect_equal(result, make_dense(1, 1, [](auto, auto) { return 512.0; }), "2^8 and 2^8 ones");
}

template<class T>
void expect_unread(double number) {
  auto const a = on_device<T>(integer_matrix(1, 3, 2));
  auto const b = on_device<T>(integer_matrix(2, 2, 4));
  auto const c = on_device<T>(make_dense(3, 4, [&](auto, auto) { return number; }));
  auto const none = on_device<T>(Dense(3, 0));
  auto const none_below = on_device<T>(Dense(0, 4));

  local_gemm<T>({}, 1, Transpose::no, a, Transpose::no, b, 0, c);
  expect_equal(c, product(integer_matrix(1, 3, 2), integer_matrix(2, 2, 4)), "C is not read");
  Kokkos::deep_copy(c, T(static_cast<float>(number)));
  local_gemm<T>({}, 1, Transpose::no, none, Transpose::no, none_below, 0, c);
  expect_equal(c, Dense(3, 4), "no inner extent");
}

TEST(TypedGemm, DoesNotReadWhatItOverwrites) {
  for (auto const number : {HUGE_VAL, std::numeric_limits<double>::quiet_NaN()}) {
    expect_unread<Bf16Number>(number);
    expect_unread<Fp16Number>(number);
  }
}

TEST(TypedGemm, ASumTooLargeForItsResultIsInfinite) {
  auto const large = make_dense(1, 1, [](auto, auto) { return 4096.0; });
  auto const a = on_device<Fp16Number>(large);
  auto const c = on_device<Fp16Number>(large);
  auto const wide = on_device<float>(large);

  local_gemm<Fp16Number>({}, -1, Transpose::no, a, Transpose::no, a, 0, c);
  local_gemm<Fp16Number, float>({}, -1, Transpose::no, a, Transpose::no, a, 0, wide);

  expect_equal(c, make_dense(1, 1, [](auto, auto) { return -HUGE_VAL; }), "fp16");
  expect_equal(wide, make_dense(1, 1, [](auto, auto) { return -16777216.0; }), "fp32");
}

TEST(TypedGemm, ExtentsThatDisagreeAreRefused) {
  auto const a = on_device<Bf16Number>(Dense(3, 4));
  auto const c = on_device<float>(Dense(3, 4));
  EXPECT_THROW((local_gemm<Bf16Number, float>({}, 1, Transpose::no, a, Transpose::no, a, 0, c)),
               runtime::Error);
}

/// C := 2 op(A) op(B) + beta C of fp32 numbers whose products take GemmMath::bf16: the sums of the rounded operands.
void expect_rounded_product(std::array<std::int64_t, 3> const& extents, Transpose ta, Transpose tb,
                            float alpha, float beta) {
  auto const [m, n, k] = extents;
  auto const number = [](std::uint64_t seed) {
    return
        [seed](auto i, auto j) { return small_integer(seed, i, j) * (1 + 0x1p-12); }; // rounds to the integer
  };
  auto const a = make_dense(ta == Transpose::yes ? k : m, ta == Transpose::yes ? m : k, number(1));
  auto const b = make_dense(tb == Transpose::yes ? n : k, tb == Transpose::yes ? k : n, number(2));
  auto const c = integer_matrix(3, m, n);
  auto const result = on_device<float>(c);

  local_gemm<float>({}, alpha, ta, on_device<float>(a), tb, on_device<float>(b), beta, result,
                    GemmMath::bf16);

  auto const rounded = [](Dense const& whole) {
    return make_dense(whole.rows, whole.columns, [&](auto i, auto j) { return std::round(whole(i, j)); });
  };
  auto const ab = product(ta == Transpose::yes ? transposed(rounded(a)) : rounded(a),
                          tb == Transpose::yes ? transposed(rounded(b)) : rounded(b));
  auto expected = c;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      expected(i, j) = static_cast<double>(alpha) * ab(i, j) + static_cast<double>(beta) * c(i, j);
  expect_equal(result, expected,
               std::to_string(m) + " x " + std::to_string(n) + ", " + std::to_string(k) + " terms");
}

TEST(TypedGemm, Fp32OperandsAreRoundedOnceIfBf16IsAsked) {
  if (!runs_on_host) GTEST_SKIP() << "gpu_check.sh asks the device";
  if (runtime::Communicator(MPI_COMM_WORLD, "world").rank() > 0) return;
  for (auto const ta : {Transpose::no, Transpose::yes})
    for (auto const tb : {Transpose::no, Transpose::yes})
      for (auto const beta : {0.0F, 1.0F, -2.0F}) {
        expect_rounded_product({3, 5, 7}, ta, tb, 1, beta);
        expect_rounded_product({130, 70, 65}, ta, tb, beta == 0 ? 2 : 1, beta);
      }
  // longer than a piece of rows, terms and columns (RoundedPiece)
  for (auto const beta : {0.0F, 1.0F}) {
    expect_rounded_product({2050, 3, 9}, Transpose::no, Transpose::no, 1, beta);
    expect_rounded_product({2, 3, 20000}, Transpose::no, Transpose::yes, 1, beta);
    expect_rounded_product({1, 260, 16384}, Transpose::no, Transpose::no, 1, beta);
    expect_rounded_product({3, 16390, 7}, Transpose::yes, Transpose::no, 1, beta);
    expect_rounded_product({3, 5, 4100}, Transpose::yes, Transpose::no, 1, beta);
    expect_rounded_product({16390, 3, 2049}, Transpose::yes, Transpose::no, 1, beta);
  }
}

} // namespace
} // namespace orthant::testing
