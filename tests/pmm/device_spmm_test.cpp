// SPDX-License-Identifier: Apache-2.0
//
// The device's sparse product on whatever execution space there is: rows of no and of ten thousand non-zeros,
// widths around the packs and strips, every weight, ranges of rows; and the plan that deals them out. Numbers
// are small integers and scales powers of two: exact in any order of the sums.
#include "pmm/spmm/local_spmm_device.hpp"
#include "support/dist_checks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using detail::DeviceSpmm;
using detail::longest_piece;
using detail::plan_rows;
using detail::plan_window;

/// A block on the host, in the order of its non-zeros.
struct Sparse {
  std::int64_t num_columns = 0;
  std::vector<runtime::Offset> offsets{0};
  std::vector<runtime::LocalColumn> columns;
  std::vector<double> values, row_scale, column_scale, self_scale; // each may be empty
  std::vector<std::int8_t> groups;
  std::vector<std::int32_t> self_columns;

  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
};

struct Traits {
  bool has_values = false, has_scales = false, has_groups = false, has_self_loops = false;
};

/// `lengths` of the rows, none above `num_columns`.
Sparse make_sparse(std::vector<std::int64_t> const& lengths, std::int64_t num_columns, Traits const& traits) {
  Sparse a;
  a.num_columns = num_columns;
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    auto const i = static_cast<std::int64_t>(row);
    // As many different columns as asked for, ascending.
    for (std::int64_t k = 0; k < lengths[row]; ++k)
      a.columns.push_back(static_cast<runtime::LocalColumn>(k * num_columns / lengths[row]));
    a.offsets.push_back(static_cast<runtime::Offset>(a.columns.size()));
    if (traits.has_scales) a.row_scale.push_back(static_cast<double>(1 << i % 3) / 2);
    if (traits.has_groups) a.groups.push_back(static_cast<std::int8_t>(i % 2));
    if (traits.has_self_loops) {
      a.self_columns.push_back(i % 3 == 0 ? static_cast<std::int32_t>((5 * i) % num_columns) : -1);
      a.self_scale.push_back(3);
    }
  }
  if (traits.has_values)
    for (std::size_t k = 0; k < a.columns.size(); ++k)
      a.values.push_back(small_integer(11, static_cast<std::int64_t>(k), 1));
  for (std::int64_t j = 0; traits.has_scales && j < num_columns * (traits.has_groups ? 2 : 1); ++j)
    a.column_scale.push_back(static_cast<double>(1 << j % 5 % 3) / 2);
  return a;
}

template<class T>
Vector<T> numbers_on_device(std::vector<double> const& numbers) {
  return device_copy(std::vector<T>(numbers.begin(), numbers.end()));
}

template<class T>
SparseBlock<T> on_device(Sparse const& a) {
  SparseBlock<T> block;
  block.csr = {a.num_rows(), a.num_columns, device_copy(a.offsets), device_copy(a.columns),
               numbers_on_device<T>(a.values)};
  block.row_scale = numbers_on_device<T>(a.row_scale);
  block.column_scale = numbers_on_device<T>(a.column_scale);
  block.row_groups = device_copy(a.groups);
  block.self_columns = device_copy(a.self_columns);
  block.self_scale = numbers_on_device<T>(a.self_scale);
  return block;
}

double small_b(std::int64_t j, std::int64_t n) {
  return static_cast<double>((j * 7 + n * 3) % 9 - 4);
}

/// Row i of the product, in fp64.
std::vector<double> serial_row(Sparse const& a, std::int64_t i, std::int64_t width) {
  auto const row = static_cast<std::size_t>(i);
  std::vector<double> c(static_cast<std::size_t>(width));
  auto const group = a.groups.empty() ? 0 : static_cast<std::int64_t>(a.groups[row]);
  for (auto k = a.offsets[row]; k < a.offsets[row + 1]; ++k) {
    auto const entry = static_cast<std::size_t>(k);
    auto const column = static_cast<std::int64_t>(a.columns[entry]);
    auto weight = a.values.empty() ? 1 : a.values[entry];
    if (!a.column_scale.empty())
      weight *= a.column_scale[static_cast<std::size_t>(group * a.num_columns + column)];
    for (std::int64_t n = 0; n < width; ++n)
      c[static_cast<std::size_t>(n)] += weight * small_b(column, n);
  }
  for (std::int64_t n = 0; n < width; ++n) {
    auto& number = c[static_cast<std::size_t>(n)];
    if (!a.row_scale.empty()) number *= a.row_scale[row];
    if (!a.self_columns.empty() && a.self_columns[row] >= 0)
      number += a.self_scale[row] * small_b(a.self_columns[row], n);
  }
  return c;
}

constexpr double stain = 12345;

template<class T>
Matrix<T> filled(std::int64_t rows, std::int64_t columns, double (*number)(std::int64_t, std::int64_t)) {
  Matrix<T> matrix("orthant::testing::filled", static_cast<std::size_t>(rows),
                   static_cast<std::size_t>(columns));
  auto const host = Kokkos::create_mirror_view(matrix);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      host(static_cast<std::size_t>(i), static_cast<std::size_t>(j)) =
          T(static_cast<runtime::SumOf<T>>(number(i, j)));
  Kokkos::deep_copy(matrix, host);
  return matrix;
}

template<class T>
void expect_rows(Sparse const& a, Range rows, Matrix<T> const& c, std::string const& what) {
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, c);
  auto const width = static_cast<std::int64_t>(c.extent(1));
  for (std::int64_t i = 0; i < a.num_rows(); ++i) {
    auto const is_asked_for = rows.begin <= i && i < rows.end;
    auto const expected =
        is_asked_for ? serial_row(a, i, width) : std::vector<double>(static_cast<std::size_t>(width), stain);
    for (std::size_t n = 0; n < expected.size(); ++n)
      ASSERT_EQ(static_cast<runtime::SumOf<T>>(host(static_cast<std::size_t>(i), n)),
                static_cast<runtime::SumOf<T>>(T(static_cast<runtime::SumOf<T>>(expected[n]))))
          << what << ", row " << i << ", column " << n;
  }
}

template<class T, class Operand = T, class Result = Operand>
void expect_product(DeviceSpmm<T>& spmm, Sparse const& a, Range rows, std::int64_t width,
                    std::string const& what) {
  auto const b = filled<Operand>(a.num_columns, width, small_b);
  auto const c = filled<Result>(a.num_rows(), width, [](std::int64_t, std::int64_t) { return stain; });
  spmm.apply(DefaultExec(), rows, b, c);
  DefaultExec().fence();
  expect_rows(a, rows, c, what + ", width " + std::to_string(width));
}

/// Around a step, a piece and several pieces of a row.
std::vector<std::int64_t> const edge_lengths{0,  1,   7,   8,   9,   15,  16,  17,  31,   0,
                                             32, 255, 256, 257, 300, 511, 512, 513, 1000, 3};

/// All of them `times` over. Of 1000 columns, twice and more gather B so often that it is copied to aligned
/// rows.
std::vector<std::int64_t> edges(std::size_t times) {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < times; ++i)
    lengths.insert(lengths.end(), edge_lengths.begin(), edge_lengths.end());
  return lengths;
}

template<class T, class Operand = T, class Result = Operand>
void expect_every_kind() {
  for (auto const& [name, traits] :
       std::vector<std::pair<std::string, Traits>>{{"pattern", {}},
                                                   {"values", {true}},
                                                   {"scales", {false, true}},
                                                   {"values and scales", {true, true}},
                                                   {"groups", {false, true, true}},
                                                   {"self loops", {false, true, true, true}},
                                                   {"values and self loops", {true, false, false, true}}}) {
    auto const a = make_sparse(edges(2), 1000, traits);
    DeviceSpmm<T> fixed(on_device<T>(a), Contents::fixed);
    DeviceSpmm<T> changing(on_device<T>(a), Contents::changing);
    for (auto const width : {1, 3, 4, 16, 31, 32, 33, 47, 64, 100, 128, 130, 200, 256, 300}) {
      expect_product<T, Operand, Result>(fixed, a, {0, 40}, width, name + ", fixed");
      expect_product<T, Operand, Result>(changing, a, {0, 40}, width, name + ", changing");
    }
  }
}

TEST(DeviceSpmm, EqualsSerialLoopsInSinglePrecision) {
  expect_every_kind<float>();
}
TEST(DeviceSpmm, EqualsSerialLoopsInDoublePrecision) {
  expect_every_kind<double>();
}

TEST(DeviceSpmm, SumsNumbersOf16BitsInSinglePrecisionAndRoundsOnce) {
  expect_every_kind<float, runtime::Bf16Number, float>();
  expect_every_kind<float, runtime::Bf16Number>();
  expect_every_kind<float, runtime::Fp16Number, float>();
  expect_every_kind<float, runtime::Fp16Number>();
}

TEST(DeviceSpmm, EveryWidthTwice) {
  auto lengths = edges(2);
  std::erase_if(lengths, [](std::int64_t length) { return length > 300; });
  auto const a = make_sparse(lengths, 300, {false, true});
  DeviceSpmm<float> spmm(on_device<float>(a), Contents::fixed);
  for (int round = 0; round < 2; ++round) // the second finds what the first has kept
    for (std::int64_t width = 1; width <= 140; width += round == 0 ? 1 : 9)
      expect_product<float>(spmm, a, {0, a.num_rows()}, width, "round " + std::to_string(round));
}

TEST(DeviceSpmm, WritesTheRowsAskedForAndNoOthers) {
  auto const a = make_sparse(edges(2), 1000, {false, true});
  DeviceSpmm<double> spmm(on_device<double>(a), Contents::fixed);
  for (auto const& rows : {Range{3, 15}, Range{0, 40}, Range{39, 40}, Range{15, 18}, Range{3, 15}})
    for (auto const width : {5, 32, 47})
      expect_product<double>(spmm, a, rows, width, "rows " + std::to_string(rows.begin));
}

/// Hubs of ten thousand between thousands of short rows: more than one window of the plan.
TEST(DeviceSpmm, HubsBetweenManyShortRows) {
  std::vector<std::int64_t> lengths(9000);
  for (std::size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = static_cast<std::int64_t>(i * i % 6);
  lengths[0] = lengths[4321] = lengths[8999] = 10000;
  auto const a = make_sparse(lengths, 10000, {});
  DeviceSpmm<float> spmm(on_device<float>(a), Contents::fixed);
  DeviceSpmm<float> changing(on_device<float>(a), Contents::changing);
  for (auto const width : {10, 32}) {
    expect_product<float>(spmm, a, {0, 9000}, width, "fixed");
    expect_product<float>(changing, a, {0, 9000}, width, "changing");
  }
}

TEST(DeviceSpmm, TheSameBitsEveryTime) {
  auto const a = make_sparse(edges(2), 1000, {});
  DeviceSpmm<float> spmm(on_device<float>(a), Contents::fixed);
  auto const b = filled<float>(1000, 47, [](std::int64_t j, std::int64_t n) {
    return 1.0 / static_cast<double>(1 + (j * 47 + n) % 1009);
  });
  auto const product = [&] {
    Matrix<float> const c("orthant::testing::c", 40, 47);
    spmm.apply(DefaultExec(), {0, 40}, b, c);
    DefaultExec().fence();
    return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, c);
  };
  auto const first = product();
  auto const again = product();
  for (std::size_t i = 0; i < 40; ++i)
    for (std::size_t n = 0; n < 47; ++n)
      EXPECT_EQ(first(i, n), again(i, n));
}

TEST(RowPlan, HoldsEveryNonZeroOnceAndSortsWithinWindows) {
  std::vector<std::int64_t> offsets{100}; // a range in the middle of a block
  std::int64_t const num_rows = 3 * plan_window;
  for (std::int64_t i = 0; i < num_rows; ++i)
    offsets.push_back(offsets.back() + (i % 9000 == 11  ? 70 * longest_piece + 3
                                        : i % 1000 == 7 ? 3 * longest_piece + i % 5
                                                        : i * i % 23));
  auto const plan = plan_rows(offsets, {50, 50 + num_rows});

  std::vector<int> seen(static_cast<std::size_t>(offsets.back() - 100));
  std::vector<int> whole(static_cast<std::size_t>(num_rows));
  for (auto const& piece : plan.pieces) {
    auto const row = static_cast<std::size_t>(piece.row - 50);
    EXPECT_LE(piece.length, longest_piece);
    EXPECT_LE(offsets[row], piece.begin);
    EXPECT_LE(piece.begin + piece.length, offsets[row + 1]);
    for (std::int64_t k = 0; k < piece.length; ++k)
      ++seen[static_cast<std::size_t>(piece.begin - 100 + k)];
    if (piece.place < 0) ++whole[row];
  }
  EXPECT_TRUE(std::ranges::all_of(seen, [](int times) { return times == 1; }));

  // Every piece's sum is added once, through its group or at once, and in the order of the row.
  std::vector<std::int64_t> begins(static_cast<std::size_t>(plan.num_places));
  for (auto const& piece : plan.pieces)
    if (piece.place >= 0) begins[static_cast<std::size_t>(piece.place)] = piece.begin;
  std::map<std::int64_t, std::int32_t> group_counts;
  for (auto const& group : plan.groups) {
    EXPECT_EQ(group.row, -1);
    EXPECT_EQ(group.step, 1);
    group_counts[group.place] = group.count;
  }
  std::int64_t num_added = 0;
  for (auto const& row : plan.long_rows) {
    ++whole[static_cast<std::size_t>(row.row - 50)];
    auto expected = offsets[static_cast<std::size_t>(row.row - 50)];
    for (std::int32_t k = 0; k < row.count; ++k) {
      auto const place = row.place + static_cast<std::int64_t>(k) * row.step;
      auto const count = row.step == 1 ? 1 : group_counts.at(place);
      for (std::int64_t i = 0; i < count; ++i, expected += longest_piece)
        EXPECT_EQ(begins[static_cast<std::size_t>(place + i)], expected);
      num_added += count;
    }
    EXPECT_GE(expected, offsets[static_cast<std::size_t>(row.row - 50) + 1]);
  }
  EXPECT_EQ(num_added, plan.num_places);
  EXPECT_FALSE(plan.groups.empty());
  EXPECT_TRUE(std::ranges::all_of(whole, [](int times) { return times == 1; }));
  EXPECT_TRUE(std::ranges::is_sorted(plan.long_rows, std::ranges::greater{}, &detail::PieceSum::count));

  auto const steps = [](detail::RowPiece const& piece) { return (piece.length + 7) / 8; };
  for (auto window = plan.pieces.begin(); window != plan.pieces.end();) {
    auto const next = window + std::min<std::ptrdiff_t>(plan.pieces.end() - window, plan_window);
    EXPECT_TRUE(std::is_sorted(
        window, next, [&](auto const& one, auto const& other) { return steps(one) > steps(other); }));
    window = next;
  }
}

} // namespace
} // namespace orthant::testing
