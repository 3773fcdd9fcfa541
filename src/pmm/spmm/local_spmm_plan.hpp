#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How the rows of a sparse product are dealt to the threads of a device. Real graphs have rows of a few and
// of a hundred thousand non-zeros: long rows are cut into pieces, and pieces that lie near one another in the
// matrix are put in the order of their lengths, so that the threads of a warp and the warps of a team finish
// together. Not in the order of all lengths: rows that are near one another often gather the same rows of B,
// which the cache then still holds.

#include "runtime/range.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::pmm::detail {

/// A row, or a piece of a long one.
struct RowPiece {
  std::int64_t begin = 0; // the first of its non-zeros
  std::int32_t length = 0;
  std::int32_t row = 0;
  std::int64_t place = -1; // row of the buffer that holds the piece's sum; -1: a whole row
};

/// Some pieces' sums to be added: every `step`th from `place` on, to the row of C or, without one, to
/// `place`.
struct PieceSum {
  std::int64_t place = 0;
  std::int32_t count = 0;
  std::int32_t step = 1;
  std::int32_t row = -1;
};

struct RowPlan {
  std::vector<RowPiece> pieces; // every row of the range is here, an empty one with length 0
  // Where rows have more pieces than are added at once, groups of them are added first.
  std::vector<PieceSum> groups;
  std::vector<PieceSum> long_rows; // one a row that was cut, those of the most sums first
  std::int64_t num_places = 0;
};

/// 24 us of a warp at a width of 128 and more work than it costs to add a piece's sum, under 1 %.
inline constexpr std::int32_t longest_piece = 256;
/// A hub of 400,000 non-zeros, 1600 pieces, is then added in 4 and 7 steps, not in 200 one after the other.
inline constexpr std::int32_t pieces_of_a_group = 32;
/// About as many as run at once on a large device.
inline constexpr std::int64_t plan_window = 8192;
/// A thread's gathers in flight (local_spmm_rows.hpp): pieces of as many steps are alike.
inline constexpr std::int32_t gathers_at_once = 8;

/// For the rows of `rows`; `offsets` are theirs, [rows.size() + 1]. Rows end below 2^31 (Error). Cost: O(rows
/// + non-zeros / longest_piece).
[[nodiscard]] RowPlan plan_rows(std::span<std::int64_t const> offsets, runtime::Range rows);

} // namespace orthant::pmm::detail
