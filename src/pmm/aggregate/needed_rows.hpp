#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which rows an aggregation must move: those that blocks touch. In step 2 (aggregate.hpp) a rank needs only the rows
// of the operand whose column in the block has an entry. In step 4 it sends only the rows of the partial result whose
// row in the block has an entry:
//
//   columns   from each rank c' of axis c the touched columns of the slab of (a, c')
//   rows      to each rank a' of axis a the touched rows of the slab of (a', c)
//
// Step 2 and step 4 become exchanges of these rows, and the block loses its empty rows and columns. The lists
// depend only on the block's pattern, not on the part of axis b, the layer or the direction. So one plan serves all
// layers, forward and backward: Flow::transpose gathers over a the rows that Flow::forward sums over a.
//
// The coverage is the share of the rows that moves. In a random graph of mean degree d, without self loops, it is
//   1 - exp(-d / G_c)   in step 2,      1 - exp(-d / G_a)   in step 4
// If the order of the rows has locality, the coverage is much lower.

#include "pmm/aggregate/cells.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/arrays/views.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace orthant::pmm {

using runtime::LocalColumn;
using runtime::Offset;

/// Which rows move along an axis: all, those that blocks touch, or whichever is faster.
enum class Gather : std::uint8_t { automatic, all, needed };

/// Parses "auto", "all" or "needed". Throws UserError for another word.
[[nodiscard]] Gather parse_gather(std::string_view word);

/// Gather::automatic moves only the needed rows along an axis if the coverage is below this bound: an all_to_all of
/// parts of different lengths has a lower bandwidth than a collective of whole slabs. 0.72 is the ratio of the two
/// bandwidths within a node (hpcgroup/plexus, collective_curve.json, 64 MB).
inline constexpr double most_coverage = 0.72;

/// Numbers of rows that move along an axis. Both arrays are [ranks of the axis].
struct NeededCounts {
  std::vector<std::int64_t> touched; // rows of each rank's slab that the block of this rank touches
  std::vector<std::int64_t> asked;   // rows of this rank's slab that the block of each rank touches
  friend bool operator==(NeededCounts const&, NeededCounts const&) = default;
};

/// Numbers of needed rows along the axes c and a of an aggregation; an axis is empty if all its rows move.
struct NeededCountsOfAxes {
  std::optional<NeededCounts> over_c, over_a;
  friend bool operator==(NeededCountsOfAxes const&, NeededCountsOfAxes const&) = default;
};

/// The rows that move along an axis. `touched` is ascending.
struct NeededSlabs {
  NeededCounts counts;
  std::vector<LocalColumn> touched;       // columns (over c) or rows (over a) of the block with an entry
  runtime::Vector<LocalColumn> asked;     // rows of this rank's slab: for rank 0 ascending, for rank 1, ..
  runtime::Vector<Offset> addend_offsets; // [rows of the slab + 1] offsets into `addends`
  runtime::Vector<Offset> addends;        // indices into `asked`, row by row, the lowest rank first
};

/// The rows that move along the axes c and a.
struct NeededRows {
  std::optional<NeededSlabs> over_c, over_a; // empty if all rows move
  // Rows that blocks touch in the slabs of other ranks, as a share of all rows of these slabs, over the whole group.
  // Empty if the axis has one rank, and for Gather::all.
  std::optional<double> coverage_c, coverage_a;

  [[nodiscard]] NeededCountsOfAxes counts() const;
  /// Number of columns that the block of these cells has after keep_needed().
  [[nodiscard]] std::int64_t num_columns(CellSizes const& sizes) const {
    return over_c ? std::ssize(over_c->touched) : sizes.num_columns();
  }
};

/// The pattern of a block [m_c x n_a] in CSR, on the host.
struct HostPattern {
  std::vector<Offset>& row_offsets;
  std::vector<LocalColumn>& columns;
};

/// Computes the coverage of the group, and exchanges the lists along the axes on which only needed rows move: one
/// all_to_all of counts, then one of rows. `sizes` are the sizes of the cells of the block; throws Error if `pattern`
/// does not have as many rows, or has more rows than LocalColumn can number. Collective over the grid's group;
/// Gather::all communicates nothing.
[[nodiscard]] NeededRows plan_needed_rows(ProcessGrid const& grid, Roles const& roles, CellSizes const& sizes,
                                          HostPattern const& pattern, Gather gather);

/// Removes from `pattern` the rows and columns without an entry, on axes where only needed rows move. Entries keep
/// their order.
void keep_needed(NeededRows const& needed, HostPattern const& pattern);
/// Returns the elements of `numbers` at `places`, which must be ascending. Empty `numbers` stay empty.
template<class Number>
[[nodiscard]] std::vector<Number> at_places(std::vector<Number> numbers,
                                            std::vector<LocalColumn> const& places) {
  if (numbers.empty()) return numbers;
  for (std::size_t i = 0; i < places.size(); ++i)
    numbers[i] = numbers[static_cast<std::size_t>(places[i])];
  numbers.resize(places.size());
  return numbers;
}
/// The indices below `count` for which claim(index) is true, ascending.
template<class Claim>
[[nodiscard]] std::vector<LocalColumn> places_where(std::int64_t count, Claim const& claim) {
  std::vector<LocalColumn> places;
  for (std::int64_t i = 0; i < count; ++i)
    if (claim(static_cast<std::size_t>(i))) places.push_back(static_cast<LocalColumn>(i));
  return places;
}

/// Numbers of the columns (`over_c`) or of the rows (`over_a`) that keep_needed() keeps in the block. `numbers` has one
/// number per column or row of the whole block, or is empty and stays empty.
[[nodiscard]] std::vector<double> keep_needed(std::optional<NeededSlabs> const& axis,
                                              std::vector<double> numbers);

// Kept rows. If only some rows of H := A F are wanted, only these rows of A are needed, and only the rows of F that
// they touch:
//
//   H[i] is wanted       keeps row i of A, and column j of A if A[i,j] is an entry
//   F[j] is wanted       if column j is kept
//
// Every row stays with its owner, so the kept part is an ordinary aggregation of cells that have fewer rows
// (cells.hpp). Applied to every layer, from the last to the first, this finds the rows that a network needs for
// some rows of its output. A row that is not kept has no gradient and is not sent.

/// One number per row of a cell: 1 if it is kept, else 0.
using KeptFlags = std::vector<std::int32_t>;

/// Positions of the kept rows, ascending.
struct KeptRows {
  std::vector<LocalColumn> own;        // in this rank's cell
  std::vector<LocalColumn> in_columns; // in the cells that are the columns of this rank's block
  std::vector<LocalColumn> in_rows;    // in the cells that are the rows of this rank's block
  std::int64_t num_global = 0;         // number of rows that all ranks together keep
};

/// Shares the kept rows of all cells along the axes of `roles`. `own` has the flags of this rank's cell; `sizes` are
/// the sizes of the cells. Collective over the grid's group.
[[nodiscard]] KeptRows share_kept_rows(ProcessGrid const& grid, Roles const& roles, CellSizes const& sizes,
                                       KeptFlags const& own);

/// Flags the rows of this rank's cell that the kept rows touch: columns of A that have an entry in a kept row.
/// `pattern` is the pattern of the whole block. Collective over axis c.
[[nodiscard]] KeptFlags rows_touched_by(ProcessGrid const& grid, Roles const& roles, CellSizes const& sizes,
                                        HostPattern const& pattern, KeptRows const& kept);

/// Sizes of the cells of a block that keeps `columns` of its columns and `rows` of its rows. `sizes` are the sizes of
/// the whole cells. Not collective.
[[nodiscard]] CellSizes sizes_of_kept(ProcessGrid const& grid, Roles const& roles, CellSizes const& sizes,
                                      KeptRows const& columns, KeptRows const& rows);

} // namespace orthant::pmm
