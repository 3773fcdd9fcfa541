#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Device kernels of LayerNorm and RMSNorm. The lanes of a thread share a row (pmm/kernels/list_teams.hpp). The kernel that writes
// dx also forms the column sums of dg, in slabs of rows (pmm/rows/column_sums.hpp).

#include "pmm/kernels/list_teams.hpp"
#include "pmm/rows/column_sums.hpp"
#include "pmm/token_rows/row_norm.hpp"
#include "runtime/device/kokkos_compat.hpp"

namespace orthant::pmm::detail {

/// Arrays that the kernels of both directions use. `mean` is null for RMSNorm; `shift` is null if there is none.
template<class T>
struct NormRows {
  using Sum = runtime::SumOf<T>;
  T const* x;
  std::int64_t num_columns;
  double inverse_width;
  double epsilon;
  bool has_mean;
  Sum const* scale;
  Sum const* shift;
  Sum* mean;
  Sum* inverse_deviation;

  [[nodiscard]] KOKKOS_FUNCTION Sum mean_of(std::int64_t row) const { return has_mean ? mean[row] : Sum{0}; }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t sums_per_row() const { return has_mean ? 2 : 1; }
};

/// The sum over a row of term(j), in double.
template<class Term>
KOKKOS_INLINE_FUNCTION double sum_row(RowTeam const& team, std::int64_t num_columns, Term const& term) {
  auto sum = 0.0;
  Kokkos::parallel_reduce(
      Kokkos::ThreadVectorRange(team, num_columns),
      [&](std::int64_t j, double& partial) { partial += term(j); }, sum);
  return sum;
}

/// sums(row, :) := (sum_j x_j, sum_j x_j^2); only sum_j x_j^2 for RMSNorm.
template<class T>
struct SumMoments {
  using Sum = runtime::SumOf<T>;
  NormRows<T> rows;
  Sum* sums;

  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t row) const {
    auto const* const x = rows.x + row * rows.num_columns;
    auto const squares =
        sum_row(team, rows.num_columns, [&](std::int64_t j) { return double{Sum{x[j]}} * Sum{x[j]}; });
    auto const sum = rows.has_mean
                         ? sum_row(team, rows.num_columns, [&](std::int64_t j) { return double{Sum{x[j]}}; })
                         : 0.0;
    Kokkos::single(Kokkos::PerThread(team), [&] {
      auto* const to = sums + row * rows.sums_per_row();
      if (rows.has_mean) *to = static_cast<Sum>(sum);
      to[rows.has_mean ? 1 : 0] = static_cast<Sum>(squares);
    });
  }
};

/// Writes y, and the state unless it is that of an earlier call.
template<class T>
struct ApplyNorm {
  using Sum = runtime::SumOf<T>;
  NormRows<T> rows;
  RowParts parts;
  Sum const* sums; // null if this rank has whole rows
  T* y;

  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t row) const {
    if (parts == RowParts::kept) {
      write(team, row, rows.mean_of(row), rows.inverse_deviation[row]);
      return;
    }
    auto const* const x = rows.x + row * rows.num_columns;
    auto mean = 0.0;
    auto variance = 0.0;
    if (sums == nullptr) {
      if (rows.has_mean)
        mean = sum_row(team, rows.num_columns, [&](std::int64_t j) { return double{Sum{x[j]}}; }) *
               rows.inverse_width;
      variance = sum_row(team, rows.num_columns,
                         [&](std::int64_t j) { return (Sum{x[j]} - mean) * (Sum{x[j]} - mean); }) *
                 rows.inverse_width;
    } else {
      auto const* const from = sums + row * rows.sums_per_row();
      if (rows.has_mean) mean = double{from[0]} * rows.inverse_width;
      variance = double{from[rows.has_mean ? 1 : 0]} * rows.inverse_width - mean * mean;
      if (variance < 0) variance = 0;
    }
    auto const m = static_cast<Sum>(mean);
    auto const r = static_cast<Sum>(1 / runtime::compat::sqrt(variance + rows.epsilon));
    write(team, row, m, r);
    Kokkos::single(Kokkos::PerThread(team), [&] {
      if (rows.has_mean) rows.mean[row] = m;
      rows.inverse_deviation[row] = r;
    });
  }

  KOKKOS_FUNCTION void write(RowTeam const& team, std::int64_t row, Sum m, Sum r) const {
    auto const* const x = rows.x + row * rows.num_columns;
    auto* const to = y + row * rows.num_columns;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, rows.num_columns), [&](std::int64_t j) {
      auto const n = (Sum{x[j]} - m) * r * rows.scale[j];
      to[j] = T(rows.shift == nullptr ? n : n + rows.shift[j]);
    });
  }
};

/// sums(row, :) := (s, t); only t for RMSNorm.
template<class T>
struct SumNormGradient {
  using Sum = runtime::SumOf<T>;
  NormRows<T> rows;
  T const* dy;
  Sum* sums;

  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t row) const {
    auto const* const x = rows.x + row * rows.num_columns;
    auto const* const gradient = dy + row * rows.num_columns;
    auto const m = rows.mean_of(row);
    auto const r = rows.inverse_deviation[row];
    auto const s = rows.has_mean
                       ? sum_row(team, rows.num_columns,
                                 [&](std::int64_t j) { return double{Sum{gradient[j]} * rows.scale[j]}; })
                       : 0.0;
    auto const t = sum_row(team, rows.num_columns, [&](std::int64_t j) {
      return double{Sum{gradient[j]} * rows.scale[j]} * ((Sum{x[j]} - m) * r);
    });
    Kokkos::single(Kokkos::PerThread(team), [&] {
      auto* const to = sums + row * rows.sums_per_row();
      if (rows.has_mean) *to = static_cast<Sum>(s);
      to[rows.has_mean ? 1 : 0] = static_cast<Sum>(t);
    });
  }
};

/// Writes dx of four elements, and returns dy n, the terms of dg.
template<class T>
struct NormGradientPack {
  using Sum = runtime::SumOf<T>;
  static constexpr bool only_loads = false;

  NormRows<T> rows;
  Divisor num_columns;
  PackedArray<T const> x;
  PackedArray<T const> dy;
  Sum const* sums;
  bool adds;
  PackedArray<T> dx;

  KOKKOS_FUNCTION Pack<Sum> operator()(std::int64_t first, std::int64_t count) const {
    auto const inverse_width = static_cast<Sum>(rows.inverse_width);
    Place place(first, num_columns);
    auto const values = x.load(first, count);
    auto const gradient = dy.load(first, count);
    auto result = adds ? dx.load(first, count) : Pack<Sum>{};
    Pack<Sum> terms{};
    for (int k = 0; k < pack_size && k < count; ++k) {
      auto const r = rows.inverse_deviation[place.row];
      auto const n = (values.number[k] - rows.mean_of(place.row)) * r;
      auto const* const of_row = sums + place.row * rows.sums_per_row();
      auto const s = rows.has_mean ? of_row[0] : Sum{0};
      auto const t = of_row[rows.has_mean ? 1 : 0];
      terms.number[k] = gradient.number[k] * n;
      result.number[k] += r * (gradient.number[k] * rows.scale[place.column] - (s + n * t) * inverse_width);
      place.step(num_columns.value());
    }
    dx.store(first, count, result);
    return terms;
  }
};

} // namespace orthant::pmm::detail
