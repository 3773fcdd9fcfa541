// SPDX-License-Identifier: Apache-2.0
//
// Every library of this build by itself against serial loops: every class of shapes, transposes, panels of larger
// matrices, factors; the same bits wherever the operands lie. Host only.
#include "pmm/gemm/dense_library.hpp"
#include "pmm/gemm/gemm_choice.hpp"
#include "support/reference.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <utility>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Bf16Number;
using runtime::SumOf;

constexpr auto nan = std::numeric_limits<float>::quiet_NaN();

/// Rows of a larger matrix: numbers beside them on both sides, and `offset` numbers before all.
template<class T>
struct Part {
  std::vector<T> numbers;
  Panel<T> panel;

  Part(Dense const& whole, std::int64_t beside, std::int64_t offset, float stain) {
    auto const stride = whole.columns + 2 * beside;
    numbers.assign(static_cast<std::size_t>(offset + whole.rows * stride), T(stain));
    panel.data = numbers.data() + offset + beside;
    panel.num_rows = whole.rows;
    panel.num_columns = whole.columns;
    panel.row_stride = stride;
    for (std::int64_t i = 0; i < whole.rows; ++i)
      for (std::int64_t j = 0; j < whole.columns; ++j)
        panel.data[i * stride + j] = T(static_cast<SumOf<T>>(whole(i, j)));
  }
};

struct Case {
  GemmExtents extents;
  Transpose transpose_a, transpose_b;
  double alpha, beta;
  std::int64_t beside;
};

std::string describe(DenseLibrary const& library, Case const& c) {
  auto const letter = [](Transpose transpose) { return transpose == Transpose::yes ? 'T' : 'N'; };
  return fmt::format("{}: {} x {} x {}, {}{}, alpha {}, beta {}, {} beside", library.name(), c.extents.m,
                     c.extents.n, c.extents.k, letter(c.transpose_a), letter(c.transpose_b), c.alpha, c.beta,
                     c.beside);
}

Dense integers(std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
  return make_dense(rows, columns, [seed](auto i, auto j) { return small_integer(seed, i, j); });
}

/// Operands and their transposes, an old C and A B, made once for all libraries and factors.
struct SerialProduct {
  Dense a, b, a_transposed, b_transposed, old, product;
};
SerialProduct const& serial_product(GemmExtents const& extents) {
  static std::map<std::array<std::int64_t, 3>, SerialProduct> made;
  auto const& [m, n, k] = extents;
  auto found = made.find({m, n, k});
  if (found == made.end()) {
    auto const a = integers(1, m, k);
    auto const b = integers(2, k, n);
    SerialProduct made_now{a, b, transposed(a), transposed(b), integers(3, m, n), product(a, b)};
    found = made.emplace(std::array{m, n, k}, std::move(made_now)).first;
  }
  return found->second;
}

/// False if the library does not have the product. Small integers: sums are exact in any order, and a result of 16 bits
/// is rounded once.
template<class Operand, class Result>
bool multiplies_exactly(DenseLibrary const& library, Case const& c) {
  auto const [m, n, k] = c.extents;
  auto const ta = c.transpose_a == Transpose::yes;
  auto const tb = c.transpose_b == Transpose::yes;
  auto const& [a, b, at, bt, old, exact] = serial_product(c.extents);
  Part<Operand> const left(ta ? at : a, c.beside, 0, nan);
  Part<Operand> const right(tb ? bt : b, c.beside, 0, nan);
  constexpr auto stain = 77.0F; // stays beside C; C itself is not read if beta is 0
  Part<Result> result(c.beta == 0 ? make_dense(m, n, [](auto, auto) { return nan; }) : old, c.beside, 0,
                      stain);

  auto const done = library.multiply(DenseProduct<Operand, Result>{
      c.extents, static_cast<SumOf<Result>>(c.alpha), c.transpose_a, left.panel, c.transpose_b, right.panel,
      static_cast<SumOf<Result>>(c.beta), result.panel});
  if (!done) return false;

  auto expected = exact;
  for (std::size_t i = 0; i < expected.numbers.size(); ++i)
    expected.numbers[i] = c.alpha * expected.numbers[i] + c.beta * old.numbers[i];
  Part<Result> const wanted(expected, c.beside, 0, stain);
  auto const differs = std::ranges::mismatch(result.numbers, wanted.numbers, [](Result x, Result y) {
    return static_cast<SumOf<Result>>(x) == static_cast<SumOf<Result>>(y);
  });
  EXPECT_EQ(differs.in1 - result.numbers.begin(), result.numbers.end() - result.numbers.begin())
      << describe(library, c);
  return true;
}

/// Every class of shapes, and extents around the pieces of 64 to 512 rows that libraries are given.
std::vector<GemmExtents> all_extents() {
  return {{1, 1, 1},       {3, 5, 2},      {63, 9, 7},       {64, 128, 100},  {65, 47, 128},
          {127, 16, 33},   {200, 32, 32},  {511, 47, 16},    {512, 40, 24},   {513, 33, 20},
          {577, 128, 47},  {1100, 64, 32}, {16, 24, 700},    {96, 80, 900},   {47, 128, 577},
          {130, 140, 150}, {1, 1, 40'000}, {600, 2, 17'000}, {300, 530, 1100}};
}

/// Factors, and numbers beside the operands.
struct Factors {
  double alpha, beta;
  std::int64_t beside;
};
constexpr std::array every_factor{Factors{1, 0, 0}, Factors{1, 0, 3},  Factors{1, 1, 3},
                                  Factors{2, 0, 0}, Factors{-1, 2, 3}, Factors{0, 1, 0}};

template<class Operand, class Result>
int count_exact_products(DenseLibrary const& library) {
  auto count = 0;
  for (auto const& extents : all_extents())
    for (auto const ta : {Transpose::no, Transpose::yes})
      for (auto const tb : {Transpose::no, Transpose::yes})
        for (auto const& [alpha, beta, beside] : every_factor)
          count += multiplies_exactly<Operand, Result>(library, {extents, ta, tb, alpha, beta, beside});
  return count;
}

TEST(DenseLibraries, EqualSerialLoops) {
  auto const num_products = static_cast<int>(all_extents().size() * 4 * every_factor.size());
  for (auto const* const library : dense_libraries()) {
    // fp32: whatever the factors, but our kernels those of 1 and 0, and no A^T B^T. All else may be left to others.
    auto const in_float = count_exact_products<float, float>(*library);
    if (library->name() == orthant_name)
      EXPECT_EQ(in_float, static_cast<int>(all_extents().size()) * 3 * 3);
    else
      EXPECT_EQ(in_float, num_products) << library->name();
    auto const in_double = count_exact_products<double, double>(*library);
    EXPECT_EQ(in_double, library->name() == "openblas" ? num_products : 0);
    auto const in_bf16 = count_exact_products<Bf16Number, float>(*library);
    auto const rounded = count_exact_products<Bf16Number, Bf16Number>(*library);
    if (library->name() == "openblas") {
      EXPECT_EQ(in_bf16 + rounded, 0);
    }
  }
}

/// Operands of any numbers, at any place in memory.
template<class Operand, class Result>
void expect_same_bits(DenseLibrary const& library) {
  auto const any = [](std::uint64_t seed) {
    return [seed](auto i, auto j) { return (small_integer(seed, i, j) + 0.3) / 7.1; };
  };
  for (auto const& [m, n, k] : all_extents())
    for (auto const ta : {Transpose::no, Transpose::yes}) {
      std::vector<Result> first;
      for (std::int64_t const offset : {0, 1, 3, 8, 16, 17}) {
        auto const a = make_dense(ta == Transpose::yes ? k : m, ta == Transpose::yes ? m : k, any(4));
        Part<Operand> const left(a, 0, offset, 0);
        Part<Operand> const right(make_dense(k, n, any(5)), 0, offset, 0);
        Part<Result> result(Dense(m, n), 0, offset, 0);
        if (!library.multiply(DenseProduct<Operand, Result>{
                {m, n, k}, 1, ta, left.panel, Transpose::no, right.panel, 0, result.panel}))
          continue;
        std::vector<Result> const numbers(result.panel.data, result.panel.data + m * n);
        if (first.empty()) first = numbers;
        EXPECT_EQ(std::memcmp(first.data(), numbers.data(), numbers.size() * sizeof(Result)), 0)
            << library.name() << ": " << m << " x " << n << " x " << k << ", offset " << offset;
      }
    }
}

TEST(DenseLibraries, GiveTheSameBitsWhereverTheOperandsLie) {
  for (auto const* const library : dense_libraries()) {
    expect_same_bits<float, float>(*library);
    expect_same_bits<double, double>(*library);
    expect_same_bits<Bf16Number, float>(*library);
    expect_same_bits<Bf16Number, Bf16Number>(*library);
  }
}

TEST(DenseLibraries, TheFirstIsOpenBlasAndAllHaveNames) {
  auto const libraries = dense_libraries();
  ASSERT_FALSE(libraries.empty());
  EXPECT_EQ(libraries.front()->name(), openblas_name);
  EXPECT_EQ(libraries.size(), gemm_libraries().size());
  for (auto const* const library : libraries)
    EXPECT_FALSE(library->version().empty());
}

/// Whatever a table says, local_gemm() multiplies: with a library that does not have the product, another one does.
template<class Operand, class Result>
void expect_local_gemm(std::string const& what) {
  for (auto const& extents : all_extents())
    for (auto const ta : {Transpose::no, Transpose::yes})
      for (float const beta : {0.0F, 1.0F, 2.0F}) {
        auto const [m, n, k] = extents;
        auto const& [a, b, at, bt, old, exact] = serial_product(extents);
        Part<Operand> const left(ta == Transpose::yes ? at : a, 1, 0, nan);
        Part<Operand> const right(b, 1, 0, nan);
        Part<Result> result(old, 1, 0, 0);
        local_gemm<Operand, Result>({}, 1, ta, left.panel, Transpose::no, right.panel, beta, result.panel);
        auto expected = exact;
        for (std::size_t i = 0; i < expected.numbers.size(); ++i)
          expected.numbers[i] += static_cast<double>(beta) * old.numbers[i];
        Part<Result> const wanted(expected, 1, 0, 0);
        EXPECT_TRUE(std::ranges::equal(result.numbers, wanted.numbers,
                                       [](Result x, Result y) {
                                         return static_cast<SumOf<Result>>(x) ==
                                                static_cast<SumOf<Result>>(y);
                                       }))
            << what << ": " << m << " x " << n << " x " << k << ", beta " << beta;
      }
}

TEST(DenseLibraries, LocalGemmMultipliesWhateverTheTableSays) {
  auto const processor = runtime::find_processor();
  for (auto const library : {openblas_name, onednn_name, orthant_name}) {
    GemmTable table;
    auto& entry = table.processors.emplace_back();
    entry.vendor = processor.vendor;
    for (auto const numbers : {GemmNumbers::fp32, GemmNumbers::bf16})
      for (auto const ta : {Transpose::no, Transpose::yes})
        for (auto const shape : {GemmShape::small, GemmShape::tall, GemmShape::tall_narrow,
                                 GemmShape::long_sum, GemmShape::long_sum_narrow, GemmShape::other})
          if (numbers == GemmNumbers::fp32 || library != orthant_name)
            entry.choices.push_back({{numbers, ta, Transpose::no, shape}, std::string(library), {}});
    set_gemm_choice(table, processor);
    expect_local_gemm<float, float>(std::string(library));
    expect_local_gemm<double, double>(std::string(library));
    expect_local_gemm<Bf16Number, float>(std::string(library));
    expect_local_gemm<Bf16Number, Bf16Number>(std::string(library));
  }
  set_gemm_choice(built_in_gemm_table(), processor);
}

TEST(DenseLibraries, AnEmptyInnerExtentLeavesBetaC) {
  Part<float> result(integers(3, 70, 5), 0, 0, 0);
  auto const before = result.numbers;
  Part<float> const left(Dense(70, 0), 0, 0, 0);
  Part<float> const right(Dense(0, 5), 0, 0, 0);
  local_gemm<float>({}, 1, Transpose::no, left.panel, Transpose::no, right.panel, 2, result.panel);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(result.numbers[i], 2 * before[i]);
}

} // namespace
} // namespace orthant::testing
