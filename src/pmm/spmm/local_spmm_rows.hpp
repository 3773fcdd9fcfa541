#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Kernels of a sparse product on a device, for any execution space. The vector lanes of one thread compute a row of C, or a piece of a long
// row. A lane holds 16 bytes of the row (4 floats, 2 doubles, or 8 numbers of 16 bits, which are summed in fp32), so 4, 8, 16 or 32 lanes
// gather a row of B in one instruction. Wider matrices are multiplied in strips of 32 lanes. Each lane has `gathers_at_once` gathers in
// flight, and requests the next columns before it adds them:
//
//   sum := sum + w_k B[j_k, lane]    k in the order of the columns;  w_k = v_k s_{j_k}, 1 for a bare pattern
//
// The terms of a row are added in the order of their columns. The pieces of a long row are summed first and then added in order. Every run
// therefore gives the same bits.

#include "pmm/kernels/packs.hpp"
#include "pmm/spmm/local_spmm.hpp"
#include "runtime/arrays/views.hpp"

#include <cstdint>

namespace orthant::pmm::detail {

/// Number of elements in 16 bytes, which a lane of a device loads or stores in one instruction.
template<class Operand>
inline constexpr int widest_pack = 16 / static_cast<int>(sizeof(Operand));

/// Arguments of a product, or of a strip of its columns. It has pointers instead of Views so that it is small enough to be a kernel
/// argument: a larger one would be copied to the device by a separate call.
template<class T, class Operand, class Result>
struct RowsProduct {
  std::int64_t const* row_offsets = nullptr;
  std::int32_t const* columns = nullptr;
  T const* values = nullptr;                  // null if all are 1
  T const* row_scale = nullptr;               // null if all are 1
  T const* column_scale = nullptr;            // null if all are 1
  std::int8_t const* row_groups = nullptr;    // null if there is one group
  std::int32_t const* self_columns = nullptr; // null if there are none
  T const* self_scale = nullptr;
  std::int64_t num_columns = 0; // column scales per group

  RowPiece const* pieces = nullptr; // null: whole rows, from first_row on
  std::int64_t first_row = 0;
  std::int64_t num_pieces = 0; // number of pieces, or of rows if `pieces` is null

  Operand const* b = nullptr;
  Result* c = nullptr;
  T* sums = nullptr; // sums of the pieces of long rows
  std::uint32_t b_stride = 0;
  std::int32_t c_stride = 0;
  std::int32_t sums_stride = 0;
  std::int32_t width = 0;
  bool c_is_aligned = false; // true if whole packs can be stored at the beginning of its rows

  [[nodiscard]] RowsProduct strip(std::int32_t first_column, std::int32_t strip_width) const {
    auto part = *this;
    part.b += first_column;
    part.c += first_column;
    if (part.sums != nullptr) part.sums += first_column;
    part.width = strip_width;
    return part;
  }
};

/// C[row, column ..] := r sum + d B[self, column ..]
template<int pack, class T, class Operand, class Result>
KOKKOS_FUNCTION void finish_row(RowsProduct<T, Operand, Result> const& p, std::int32_t row,
                                std::int32_t column, StoredNumbers<T, pack> sum) {
  if (p.row_scale != nullptr) {
    auto const scale = p.row_scale[row];
    for (int i = 0; i < pack; ++i)
      sum.at[i] *= scale;
  }
  auto const self = p.self_columns == nullptr ? -1 : p.self_columns[row];
  if (self >= 0) {
    auto const scale = p.self_scale[row];
    auto const* const own = p.b + static_cast<std::int64_t>(self) * p.b_stride + column;
    for (int i = 0; i < pack; ++i)
      sum.at[i] += scale * own[i];
  }
  auto* const c = p.c + static_cast<std::int64_t>(row) * p.c_stride + column;
  if (p.c_is_aligned) {
    StoredNumbers<Result, pack> stored;
    for (int i = 0; i < pack; ++i)
      stored.set(i, sum.at[i]);
    *reinterpret_cast<StoredNumbers<Result, pack>*>(c) = stored;
  } else {
    for (int i = 0; i < pack; ++i)
      if (column + i < p.width) c[i] = Result(sum.at[i]);
  }
}

/// Factor of a term. Each has a kernel of its own, so that bare patterns do not read weights.
enum class Weights : std::uint8_t { none, of_columns, any };

/// Computes whole rows of C, and sums of pieces in `sums`.
template<class T, class Operand, class Result, int pack, Weights weights>
struct MultiplyRows {
  using Lane = StoredNumbers<T, pack>;
  using Gathered = StoredNumbers<Operand, pack>;
  using Member = Kokkos::TeamPolicy<runtime::DefaultExec>::member_type;
  static constexpr int at_once = gathers_at_once;
  static constexpr bool is_weighted = weights != Weights::none;

  RowsProduct<T, Operand, Result> p;

  KOKKOS_FUNCTION void operator()(Member const& team) const {
    auto const index = static_cast<std::int64_t>(team.league_rank()) * team.team_size() + team.team_rank();
    if (index >= p.num_pieces) return;
    auto const piece = p.pieces == nullptr ? whole_row(p.first_row + index) : p.pieces[index];
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, (p.width + pack - 1) / pack), [&](int lane) {
      auto const column = lane * pack;
      auto const sum = sum_of(piece, column);
      if (piece.place < 0)
        finish_row<pack>(p, piece.row, column, sum);
      else
        *reinterpret_cast<Lane*>(p.sums + piece.place * p.sums_stride + column) = sum;
    });
  }

  KOKKOS_FUNCTION RowPiece whole_row(std::int64_t row) const {
    auto const begin = p.row_offsets[row];
    return {begin, static_cast<std::int32_t>(p.row_offsets[row + 1] - begin), static_cast<std::int32_t>(row),
            -1};
  }

  /// Entries of a row or piece.
  struct Entries {
    std::int32_t const* columns;
    T const* values;
    T const* scale;
    std::int32_t count;
  };

  KOKKOS_FUNCTION Entries entries_of(RowPiece const& piece) const {
    auto const group = p.row_groups == nullptr ? 0 : static_cast<std::int64_t>(p.row_groups[piece.row]);
    return {p.columns + piece.begin, p.values == nullptr ? nullptr : p.values + piece.begin,
            p.column_scale == nullptr ? nullptr : p.column_scale + group * p.num_columns, piece.length};
  }

  KOKKOS_FUNCTION Lane sum_of(RowPiece const& piece, std::int32_t column) const {
    Lane sum{};
    if (piece.length == 0) return sum;
    auto const entries = entries_of(piece);
    auto const* const b = p.b + column;
    std::uint32_t next[at_once];
    load_columns(entries, 0, next);
    std::int32_t k = 0;
    for (; k + at_once <= entries.count; k += at_once)
      add_step<false>(entries, k, b, next, sum);
    if (k < entries.count) add_step<true>(entries, k, b, next, sum);
    return sum;
  }

  /// Index of entry k, or of the last entry if k is beyond it. Each step loads the same number of entries and adds only the valid ones.
  KOKKOS_FUNCTION static std::uint32_t within(Entries const& entries, std::int32_t k) {
    auto const last = entries.count - 1;
    return static_cast<std::uint32_t>(k < last ? k : last);
  }

  KOKKOS_FUNCTION void load_columns(Entries const& entries, std::int32_t k,
                                    std::uint32_t (&next)[at_once]) const {
    for (int u = 0; u < at_once; ++u)
      next[u] = static_cast<std::uint32_t>(entries.columns[within(entries, k + u)]);
  }

  KOKKOS_FUNCTION void load_weights(Entries const& entries, std::int32_t k,
                                    std::uint32_t const (&columns)[at_once], T (&weight)[at_once]) const {
    if constexpr (weights == Weights::of_columns) {
      for (int u = 0; u < at_once; ++u)
        weight[u] = entries.scale[columns[u]];
    } else if constexpr (weights == Weights::any) {
      for (int u = 0; u < at_once; ++u)
        weight[u] = entries.values[within(entries, k + u)];
      if (entries.scale != nullptr)
        for (int u = 0; u < at_once; ++u)
          weight[u] *= entries.scale[columns[u]];
    }
  }

  /// Adds the terms from k on. Only the last step may have fewer than at_once terms. `next` contains the columns of these terms, and on
  /// return the columns of the next step.
  template<bool is_last>
  KOKKOS_FUNCTION void add_step(Entries const& entries, std::int32_t k, Operand const* b,
                                std::uint32_t (&next)[at_once], Lane& sum) const {
    Gathered gathered[at_once];
    T weight[at_once];
    for (int u = 0; u < at_once; ++u)
      gathered[u] = *reinterpret_cast<Gathered const*>(b + static_cast<std::uint64_t>(next[u]) * p.b_stride);
    load_weights(entries, k, next, weight);
    if constexpr (!is_last) load_columns(entries, k + at_once, next);
    for (int u = 0; u < at_once; ++u)
      for (int i = 0; i < pack; ++i) {
        T const number = gathered[u].get(i);
        auto const term = is_weighted ? weight[u] * number : number;
        sum.at[i] += is_last && k + u >= entries.count ? T{0} : term;
      }
  }
};

/// Adds sums of pieces in order. Each index is one lane of one PieceSum.
template<class T, class Operand, class Result, int pack>
struct AddPieces {
  using Lane = StoredNumbers<T, pack>;
  static constexpr int at_once = gathers_at_once;

  RowsProduct<T, Operand, Result> p;
  PieceSum const* sums;
  std::int32_t lanes_per_row;

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    auto const task = sums[index / lanes_per_row];
    auto const column = static_cast<std::int32_t>(index % lanes_per_row) * pack;
    auto* const first = p.sums + task.place * p.sums_stride + column;
    auto const stride = static_cast<std::int64_t>(task.step) * p.sums_stride;
    Lane sum{};
    for (std::int32_t k = 0; k < task.count; k += at_once)
      add_step(first, stride, k, task.count, sum);
    if (task.row < 0)
      *reinterpret_cast<Lane*>(first) = sum;
    else
      finish_row<pack>(p, task.row, column, sum);
  }

  /// Beyond the end, loads the last sum again and does not add it, as in MultiplyRows.
  KOKKOS_FUNCTION static void add_step(T const* first, std::int64_t stride, std::int32_t k,
                                       std::int32_t count, Lane& sum) {
    Lane part[at_once];
    for (int u = 0; u < at_once; ++u)
      part[u] = *reinterpret_cast<Lane const*>(first + (k + u < count ? k + u : count - 1) * stride);
    for (int u = 0; u < at_once; ++u)
      for (int i = 0; i < pack; ++i)
        sum.at[i] += k + u < count ? part[u].at[i] : T{0};
  }
};

} // namespace orthant::pmm::detail
