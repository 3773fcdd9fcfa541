// SPDX-License-Identifier: Apache-2.0
//
// Sparse products of one rank: every width around the vector lengths, patterns, values and scales, row ranges, empty extents.
#include "pmm/kernels/host_parts.hpp"
#include "pmm/local_arrays.hpp"
#include "pmm/spmm/local_spmm.hpp"

#include <cmath>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

template<class T, class Operand = T>
void expect_spmm_of_every_width() {
  for (int variant = 0; variant < 4; ++variant) {
    SparseRecipe const recipe{41, variant % 2 == 1, variant >= 2};
    auto const a = make_dense(19, 26, recipe);
    LocalSpmm<T> const spmm(sparse_block<T>(recipe, {0, 19}, {0, 26}));
    LocalSpmm<T> const adjoint(transposed(spmm.block()));
    for (std::int64_t width = 1; width <= 300; width += width < 70 ? 1 : 23) {
      auto const b = make_dense(26, width, [](auto i, auto j) { return small_integer(6, i, j); });
      auto const c = make_dense(19, width, [](auto i, auto j) { return small_integer(7, i, j); });
      auto const stain = [](auto, auto) { return 12345.0; };
      auto const ab = device_matrix<T>(make_dense(19, width, stain));
      auto const atc = device_matrix<T>(make_dense(26, width, stain));

      spmm.apply(DefaultExec(), {0, 19}, device_matrix<Operand>(b), ab);
      adjoint.apply(DefaultExec(), {0, 26}, device_matrix<Operand>(c), atc);

      auto const what = "width " + std::to_string(width) + ", variant " + std::to_string(variant);
      expect_equal(ab, product(a, b), what);
      expect_equal(atc, product(transposed(a), c), what);
    }
  }
}

TEST(LocalSpmm, EqualsSerialLoopsAtEveryWidthInSinglePrecision) {
  expect_spmm_of_every_width<float>();
  expect_spmm_of_every_width<float, runtime::Bf16Number>();
  expect_spmm_of_every_width<float, runtime::Fp16Number>();
}
TEST(LocalSpmm, EqualsSerialLoopsAtEveryWidthInDoublePrecision) {
  expect_spmm_of_every_width<double>();
}

/// On a device the first product of a width tries the vendor's library and later ones use what was faster; a
/// part of the rows always takes the own kernel.
TEST(LocalSpmm, AFixedBlockGivesTheSameEveryTime) {
  for (int variant = 0; variant < 4; ++variant) {
    SparseRecipe const recipe{43, variant % 2 == 1, variant >= 2};
    auto const a = make_dense(60, 33, recipe);
    LocalSpmm<float> const spmm(sparse_block<float>(recipe, {0, 60}, {0, 33}), Contents::fixed);
    for (std::int64_t const width : {32, 47, 32, 128, 47, 1}) {
      auto const b = make_dense(33, width, [&](auto i, auto j) { return small_integer(width, i, j); });
      auto const c = device_matrix<float>(make_dense(60, width, [](auto, auto) { return 12345.0; }));
      auto const device_b = device_matrix<float>(b);

      spmm.apply(DefaultExec(), {0, 60}, device_b, c);
      spmm.apply(DefaultExec(), {7, 31}, device_b, c);

      expect_equal(c, product(a, b),
                   "width " + std::to_string(width) + ", variant " + std::to_string(variant));
    }
  }
}

TEST(LocalSpmm, EveryWayToAProductGivesTheSame) {
  SparseRecipe const recipe{43, false, true};
  auto const a = make_dense(60, 33, recipe);
  LocalSpmm<double> const spmm(sparse_block<double>(recipe, {0, 60}, {0, 33}), Contents::fixed);
  for (std::int64_t const width : {3, 16, 32, 47, 100}) {
    auto const b = make_dense(33, width, [&](auto i, auto j) { return small_integer(width, i, j); });
    auto const device_b = device_matrix<double>(b);
    auto const c = device_matrix<double>(Dense(60, width));

    auto const ways = spmm.ways(DefaultExec(), device_b, c);

    // On a device the library has at least one. On a host a strip as wide as the matrix and as aligned is no way.
    ASSERT_EQ(ways.size(), !runs_on_host || width == 16 ? 2U : 4U);
    for (auto const& way : ways) {
      Kokkos::deep_copy(c, 12345.0);
      way.run();
      DefaultExec().fence();
      expect_equal(c, product(a, b), way.name + ", width " + std::to_string(width));
    }
  }
}

TEST(LocalSpmm, TheFirstProductsOfASizeChooseItsWay) {
  SparseRecipe const recipe{41, false, true};
  LocalSpmm<double> const spmm(sparse_block<double>(recipe, {0, 59}, {0, 37}), Contents::fixed);
  std::int64_t const width = 23; // no other test's
  auto const b =
      device_matrix<double>(make_dense(37, width, [](auto i, auto j) { return small_integer(1, i, j); }));
  auto const c = device_matrix<double>(Dense(59, width));
  EXPECT_EQ(spmm.way_of(width), "");

  for (auto call = 0; call < 12; ++call)
    spmm.apply(DefaultExec(), {0, 59}, b, c);

  std::vector<std::string> names;
  for (auto const& way : spmm.ways(DefaultExec(), b, c))
    names.push_back(way.name);
  EXPECT_TRUE(std::ranges::find(names, spmm.way_of(width)) != names.end()) << spmm.way_of(width);
}

/// C of the block's pattern, scales and self loops, to the rounding of some fifty terms.
void expect_near_serial_sums(SparseBlock<float> const& block, Matrix<float> const& b,
                             Matrix<float> const& c) {
  auto const has_self_loops = block.self_columns.extent(0) > 0;
  for (std::size_t i = 0; i < c.extent(0); ++i)
    for (std::size_t j = 0; j < c.extent(1); ++j) {
      auto sum = 0.0;
      auto magnitude = 0.0;
      for (auto k = block.csr.row_offsets(i); k < block.csr.row_offsets(i + 1); ++k) {
        auto const column = static_cast<std::size_t>(block.csr.columns(static_cast<std::size_t>(k)));
        auto const value =
            block.csr.values.extent(0) == 0 ? 1.0F : block.csr.values(static_cast<std::size_t>(k));
        auto const term =
            static_cast<double>(value * block.column_scale(column)) * static_cast<double>(b(column, j));
        sum += term;
        magnitude += std::abs(term);
      }
      sum *= static_cast<double>(block.row_scale(i));
      magnitude *= static_cast<double>(block.row_scale(i));
      if (has_self_loops && block.self_columns(i) >= 0)
        sum += static_cast<double>(block.self_scale(i)) *
               static_cast<double>(b(static_cast<std::size_t>(block.self_columns(i)), j));
      auto const bound = 1e-5 * (magnitude + std::abs(sum));
      ASSERT_NEAR(static_cast<double>(c(i, j)), sum, bound) << "row " << i << ", column " << j;
    }
}

// Sums, scales and self loops in floating point: each number of C is one sum, in the same order, on every way, and with the
// weights that are kept of a fixed block.
TEST(LocalSpmm, TheWaysOfAHostGiveTheSameBits) {
  if constexpr (!runs_on_host) GTEST_SKIP() << "a library sums in an order of its own";
  for (auto const has_self_loops : {false, true})
    for (std::int64_t const width : {5, 33, 64, 100, 128, 301}) {
      SparseRecipe const recipe{47, width % 2 == 1, true};
      auto block = sparse_block<float>(recipe, {0, 60}, {0, 33});
      block.row_scale =
          device_vector<float>(60, [](auto i) { return 1.0F / (1.0F + static_cast<float>(i)); });
      block.column_scale =
          device_vector<float>(33, [](auto i) { return 1.0F / (3.0F + static_cast<float>(i)); });
      if (has_self_loops) {
        block.self_columns =
            device_vector<std::int32_t>(60, [](auto i) { return static_cast<std::int32_t>(i % 33) - 1; });
        block.self_scale =
            device_vector<float>(60, [](auto i) { return 0.3F + 0.01F * static_cast<float>(i); });
      }
      LocalSpmm<float> const spmm(block);
      auto const b = device_matrix<float>(make_dense(33, width, [](auto i, auto j) {
        return 1.0 / (7.0 + static_cast<double>(i) + 3.0 * static_cast<double>(j));
      }));
      auto const expected = device_matrix<float>(Dense(60, width));
      auto const c = device_matrix<float>(Dense(60, width));
      auto const ways = spmm.ways(DefaultExec(), b, expected);
      ASSERT_EQ(ways.size(), 4U);
      ways.front().run();
      expect_near_serial_sums(block, b, expected);
      for (auto const contents : {Contents::changing, Contents::fixed}) {
        LocalSpmm<float> const same(block, contents);
        same.keep_weights(DefaultExec()); // of the fixed one
        for (auto const& way : same.ways(DefaultExec(), b, c)) {
          way.run();
          for (std::size_t i = 0; i < c.size(); ++i)
            ASSERT_EQ(c.data()[i], expected.data()[i]) << way.name << ", width " << width << ", number " << i;
        }
      }
    }
}

TEST(LocalSpmm, WritesTheRowsAskedForAndNoOthers) {
  SparseRecipe const recipe{43, false, true};
  LocalSpmm<double> const spmm(sparse_block<double>(recipe, {0, 12}, {0, 9}));
  auto const b = make_dense(9, 5, [](auto i, auto j) { return small_integer(6, i, j); });
  auto const c = device_matrix<double>(make_dense(12, 5, [](auto, auto) { return -99.0; }));

  spmm.apply(DefaultExec(), {3, 7}, device_matrix<double>(b), c);

  auto expected = product(make_dense(12, 9, recipe), b);
  for (std::int64_t i = 0; i < 12; ++i)
    for (std::int64_t j = 0; j < 5; ++j)
      if (i < 3 || i >= 7) expected(i, j) = -99;
  expect_equal(c, expected, "rows 3 to 6");
}

/// Rows of a sampled batch: two groups with column scales of their own, some rows with a self loop apart.
template<class T, class Operand = T>
void expect_groups_and_self_loops() {
  SparseRecipe const recipe{47, false, true};
  auto block = sparse_block<T>(recipe, {0, 19}, {0, 26});
  auto const pattern = make_dense(19, 26, SparseRecipe{47, false, false});
  auto const row_scale = host_copy(block.row_scale);
  std::vector<T> column_scale(2 * 26);
  for (std::size_t j = 0; j < column_scale.size(); ++j)
    column_scale[j] = static_cast<T>(1 + j % 5) / 2;
  std::vector<std::int8_t> groups(19);
  std::vector<std::int32_t> self_columns(19, -1);
  std::vector<T> self_scale(19, T{3});
  Dense a(19, 26);
  for (std::int64_t i = 0; i < 19; ++i) {
    auto const row = static_cast<std::size_t>(i);
    groups[row] = static_cast<std::int8_t>(i % 2);
    for (std::int64_t j = 0; j < 26; ++j)
      a(i, j) = static_cast<double>(row_scale(row)) * pattern(i, j) *
                static_cast<double>(column_scale[static_cast<std::size_t>(i % 2 * 26 + j)]);
    if (i % 3 != 0) continue;
    self_columns[row] = static_cast<std::int32_t>((5 * i) % 26);
    a(i, (5 * i) % 26) += 3;
  }
  block.column_scale = device_copy(column_scale);
  block.row_groups = device_copy(groups);
  block.self_columns = device_copy(self_columns);
  block.self_scale = device_copy(self_scale);
  LocalSpmm<T> const spmm(block);
  for (auto const width : {1, 3, 16, 47, 64, 130}) {
    auto const b = make_dense(26, width, [](auto i, auto j) { return small_integer(6, i, j); });
    auto const c = device_matrix<T>(make_dense(19, width, [](auto, auto) { return 12345.0; }));
    spmm.apply(DefaultExec(), {0, 19}, device_matrix<Operand>(b), c);
    expect_equal(c, product(a, b), "width " + std::to_string(width));
  }
  EXPECT_THROW((void)transposed(block), runtime::Error);
  block.self_scale = device_copy(std::vector<T>(18, T{3}));
  EXPECT_THROW(LocalSpmm<T>{block}, runtime::Error);
}

TEST(LocalSpmm, RowGroupsChooseColumnScalesAndSelfLoopsLieApart) {
  expect_groups_and_self_loops<float>();
  expect_groups_and_self_loops<double>();
  expect_groups_and_self_loops<float, runtime::Bf16Number>();
}

TEST(LocalSpmm, EmptyBlocksGiveZeroRowsOrNothing) {
  SparseRecipe const recipe{44, false, false};
  auto const c = device_matrix<double>(make_dense(4, 3, [](auto, auto) { return 7.0; }));

  LocalSpmm<double>(sparse_block<double>(recipe, {0, 4}, {0, 0}))
      .apply(DefaultExec(), {0, 4}, device_matrix<double>(Dense(0, 3)), c);
  expect_equal(c, Dense(4, 3), "no columns");

  auto const none = transposed(sparse_block<double>(recipe, {0, 0}, {0, 4}));
  EXPECT_EQ(none.csr.num_rows, 4);
  EXPECT_EQ(none.csr.num_columns, 0);
  EXPECT_EQ(none.csr.num_nonzeros(), 0);
}

TEST(LocalSpmm, TransposedRowsAscendAndTwiceIsTheSame) {
  SparseRecipe const recipe{45, true, true};
  auto const block = sparse_block<double>(recipe, {0, 40}, {0, 33});
  auto const once = transposed(block);
  auto const twice = transposed(once);
  auto const offsets = host_copy(once.csr.row_offsets);
  auto const columns = host_copy(once.csr.columns);
  for (std::size_t row = 0; row < 33; ++row)
    for (auto k = offsets(row) + 1; k < offsets(row + 1); ++k)
      EXPECT_LT(columns(static_cast<std::size_t>(k - 1)), columns(static_cast<std::size_t>(k)));
  auto const expect_same = [](auto const& one, auto const& other) {
    auto const a = host_copy(one);
    auto const b = host_copy(other);
    ASSERT_EQ(a.extent(0), b.extent(0));
    for (std::size_t i = 0; i < a.extent(0); ++i)
      EXPECT_EQ(a(i), b(i));
  };
  expect_same(twice.csr.row_offsets, block.csr.row_offsets);
  expect_same(twice.csr.columns, block.csr.columns);
  expect_same(twice.csr.values, block.csr.values);
  expect_same(twice.row_scale, block.row_scale);
}

TEST(LocalSpmm, WrongLengthsAreRefused) {
  SparseRecipe const recipe{46, true, true};
  auto block = sparse_block<double>(recipe, {0, 5}, {0, 6});
  LocalSpmm<double> const spmm(block);
  auto const right = device_matrix<double>(Dense(6, 2));
  auto const result = device_matrix<double>(Dense(5, 2));
  EXPECT_NO_THROW(spmm.apply(DefaultExec(), {0, 5}, right, result));
  EXPECT_THROW(spmm.apply(DefaultExec(), {0, 5}, result, result), runtime::Error);
  EXPECT_THROW(spmm.apply(DefaultExec(), {0, 6}, right, result), runtime::Error);
  block.row_scale = device_copy(std::vector<double>(4, 1.0));
  EXPECT_THROW(LocalSpmm<double>{block}, runtime::Error);
}

} // namespace
} // namespace orthant::testing
