#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The mask of rms_norm.cpp, and its kernels on a device (pmm/kernels/list_teams.hpp, pmm/rows/column_sums.hpp). Bytes moved, and time for
// 2,450,000 x 128 floats at 4.3 TB/s; bits and numbers per row add a few percent:
//
//   SquareRow                      reads z                                            1.25 GB   0.29 ms
//   NormaliseRow                   reads z, writes the result (and reads an addend)   2.51 GB   0.58 ms
//                                  replaces SquareRow if one rank has all columns
//   GradientRowSum, GradientPack   read z and dd; the second writes dz                6.27 GB   1.46 ms
//
// A vector lane of NormaliseRow processes eight columns, which is a byte of bits.

#include "models/layers/rms_norm.hpp"
#include "pmm/kernels/list_teams.hpp"
#include "pmm/rows/column_sums.hpp"

#include <bit>

namespace orthant::models::detail {

using pmm::Divisor;
using pmm::Pack;
using pmm::pack_size;
using pmm::PackedArray;
using pmm::Place;
using pmm::RowTeam;
using runtime::SumOf;
using runtime::Vector;

/// The dropout mask of all rows.
struct Masks {
  runtime::RandomStream stream;
  std::uint64_t drop_threshold;      // a word below it drops the element; 0: nothing is dropped
  Vector<std::int64_t> original_ids; // empty without dropout
  std::uint64_t first_column;

  /// Bit k: whether column begin + k of the row is kept, for `count` columns, at most 32. Four neighboring features are drawn at once.
  [[nodiscard]] KOKKOS_FUNCTION std::uint32_t kept(std::size_t row, std::size_t begin,
                                                   std::size_t count) const {
    if (drop_threshold == 0) return ~std::uint32_t{0};
    auto const vertex = static_cast<std::uint64_t>(original_ids(row));
    auto const feature = first_column + begin;
    auto const first_block = feature >> 2;
    auto const num_blocks = ((feature + count - 1) >> 2) - first_block + 1;
    std::uint64_t bits = 0;
    for (std::uint64_t b = 0; b < num_blocks; ++b) {
      auto const block = stream.block(vertex, first_block + b);
      for (unsigned word = 0; word < 4; ++word)
        bits |= static_cast<std::uint64_t>(block[word] >= drop_threshold) << (4 * b + word);
    }
    return static_cast<std::uint32_t>(bits >> (feature & 3));
  }
};

/// Columns per vector lane.
inline constexpr std::int64_t columns_a_lane = 8;

/// Sum of z_ij^2 over a row, computed by all lanes; each lane gets the sum.
template<class T>
KOKKOS_INLINE_FUNCTION SumOf<T> sum_of_squares(RowTeam const& team, PackedArray<T const> const& z,
                                               std::int64_t row, std::int64_t num_columns) {
  SumOf<T> sum = 0;
  auto const first = row * num_columns;
  Kokkos::parallel_reduce(
      Kokkos::ThreadVectorRange(team, (num_columns + pack_size - 1) / pack_size),
      [&](std::int64_t pack, SumOf<T>& squares) {
        auto const begin = pack * pack_size;
        auto const numbers = z.load(first + begin, num_columns - begin);
        for (auto const number : numbers.number)
          squares += number * number;
      },
      sum);
  return sum;
}

/// sums(i) := sum_j z_ij^2
template<class T>
struct SquareRow {
  using Sum = SumOf<T>;
  PackedArray<T const> z;
  std::int64_t num_columns;
  Sum* sums;

  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t row) const {
    auto const sum = sum_of_squares(team, z, row, num_columns);
    Kokkos::single(Kokkos::PerThread(team), [&] { sums[row] = sum; });
  }
};

/// inverse_rms(i) := r_i; result := d or addend + d; sets `passed`. If other ranks also have columns, inverse_rms(i) holds
/// the sum of squares on entry.
template<class T>
struct NormaliseRow {
  using Sum = SumOf<T>;
  static_assert(std::endian::native == std::endian::little, "byte b of a word is its bits 8 b and up");

  PackedArray<T const> z;
  PackedArray<Sum const> scale;
  std::int64_t num_columns;
  Masks masks;
  Sum keep_scale;
  Sum inverse_width; // 1 / D
  bool has_squares;
  Sum* inverse_rms;
  std::uint8_t* passed; // the bytes of RmsNormState::passed
  std::int64_t words_per_row;
  PackedArray<T const> addend; // empty without an addend
  PackedArray<T> result;

  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t row) const {
    auto const squares = has_squares ? inverse_rms[row] : sum_of_squares(team, z, row, num_columns);
    auto const r = Sum{1} / runtime::compat::sqrt(squares * inverse_width + static_cast<Sum>(rms_epsilon));
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, (num_columns + columns_a_lane - 1) / columns_a_lane),
                         [&](std::int64_t lane) { normalise(row, lane, r); });
    // After all lanes have read inverse_rms(row).
    Kokkos::single(Kokkos::PerThread(team), [&] { inverse_rms[row] = r; });
  }

  KOKKOS_FUNCTION void normalise(std::int64_t row, std::int64_t lane, Sum r) const {
    auto const begin = lane * columns_a_lane;
    auto const count = num_columns - begin < columns_a_lane ? num_columns - begin : columns_a_lane;
    auto const kept = masks.kept(static_cast<std::size_t>(row), static_cast<std::size_t>(begin),
                                 static_cast<std::size_t>(count));
    std::uint32_t positive = 0;
    for (std::int64_t half = 0; half < columns_a_lane; half += pack_size) {
      auto const column = begin + half;
      auto const left = num_columns - column;
      if (left <= 0) break;
      auto const first = row * num_columns + column;
      auto pack = z.load(first, left);
      auto const factors = scale.load(column, left);
      auto const adds = !addend.is_empty();
      auto const before = adds ? addend.load(first, left) : Pack<Sum>{};
      for (int k = 0; k < pack_size; ++k) {
        auto const bit = static_cast<unsigned>(half) + static_cast<unsigned>(k);
        auto const n = r * pack.number[k] * factors.number[k];
        // NaN is kept: it must reach the loss, where it is reported.
        auto const d = (kept >> bit & 1) == 0 || n < Sum{0} ? Sum{0} : n * keep_scale;
        pack.number[k] = adds ? before.number[k] + d : d;
        positive |= static_cast<std::uint32_t>(n > Sum{0}) << bit;
      }
      result.store(first, left, pack);
    }
    passed[row * words_per_row * 4 + lane] = static_cast<std::uint8_t>(kept & positive);
  }
};

/// Input of the backward kernels. dn is dd / (1 - p) where the bit is set, else 0.
template<class T>
struct GradientSource {
  using Sum = SumOf<T>;
  PackedArray<T const> z;
  PackedArray<Sum const> scale;
  Divisor num_columns;
  Sum keep_scale;
  Sum const* inverse_rms;
  std::uint32_t const* passed;
  std::int64_t words_per_row;

  [[nodiscard]] KOKKOS_FUNCTION std::uint32_t word(std::int64_t row, std::int64_t column) const {
    return passed[row * words_per_row + (column >> 5)];
  }
};

/// sums(i) := sum_j dn_ij g_j r_i z_ij
template<class T>
struct GradientRowSum {
  using Sum = SumOf<T>;
  GradientSource<T> source;
  PackedArray<T const> gradient; // dd
  Sum* sums;

  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t row) const {
    auto const num_columns = source.num_columns.value();
    Sum total = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, (num_columns + pack_size - 1) / pack_size),
        [&](std::int64_t pack, Sum& sum) {
          auto const column = pack * pack_size;
          auto const left = num_columns - column;
          auto const first = row * num_columns + column;
          auto const bits = source.word(row, column) >> (column & 31);
          auto const dd = gradient.load(first, left);
          auto const z = source.z.load(first, left);
          auto const g = source.scale.load(column, left);
          for (int k = 0; k < pack_size; ++k)
            if ((bits >> k & 1) != 0) sum += dd.number[k] * source.keep_scale * g.number[k] * z.number[k];
        },
        total);
    Kokkos::single(Kokkos::PerThread(team), [&] { sums[row] = total * source.inverse_rms[row]; });
  }
};

/// z_gradient := dz. Returns dn r z, the terms of dg.
template<class T>
struct GradientPack {
  using Sum = SumOf<T>;
  static constexpr bool only_loads = false;

  GradientSource<T> source;
  PackedArray<T const> gradient; // dd
  PackedArray<T> z_gradient;     // may be the gradient
  Sum const* row_sums;           // t
  Sum inverse_width;

  KOKKOS_FUNCTION Pack<Sum> operator()(std::int64_t first, std::int64_t count) const {
    auto const num_columns = source.num_columns.value();
    Place place(first, source.num_columns);
    auto const g = row_pack(source.scale, place.column, num_columns);
    auto const z = source.z.load(first, count);
    auto dz = gradient.load(first, count);
    Pack<Sum> terms{};
    Sum r = 0;
    Sum along = 0;
    std::uint32_t bits = 0;
    for (int k = 0; k < pack_size && k < count; ++k) {
      if (k == 0 || place.column == 0) {
        r = source.inverse_rms[place.row];
        along = r * row_sums[place.row] * inverse_width;
      }
      if (k == 0 || place.column % 32 == 0) bits = source.word(place.row, place.column);
      auto const dn = (bits >> (place.column & 31) & 1) != 0 ? dz.number[k] * source.keep_scale : Sum{0};
      terms.number[k] = dn * r * z.number[k];
      dz.number[k] = r * (dn * g.number[k] - z.number[k] * along);
      place.step(num_columns);
    }
    z_gradient.store(first, count, dz);
    return terms;
  }
};

} // namespace orthant::models::detail
