#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which rows an aggregation must move: those that blocks touch. In steps 2 and 4 (aggregate.hpp) a rank needs
// only the rows of the operand whose column of the block has an entry, and has only those rows of the partial
// result whose row of the block has an entry:
//
//   columns   from each rank c' of axis c the touched columns of the slab of (a, c')
//   rows      to each rank a' of axis a the touched rows of the slab of (a', c)
//
// Step 2 and step 4 become exchanges of these rows, and the block loses its empty rows and columns. The lists
// follow from the block's pattern alone: not from the part of axis b, the layer or the direction. So one plan
// serves all layers and both adjoints; Flow::transpose gathers over a what forward is summed over a.
//
// In a random graph of mean degree d, without self loops, the share of the rows that is moved (the coverage)
// is 1 - exp(-d / G_c) in step 2 and 1 - exp(-d / G_a) in step 4; in an order with locality it is far less.

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

/// "auto", "all" or "needed". Throws UserError for another word.
[[nodiscard]] Gather parse_gather(std::string_view word);

/// Gather::automatic moves the needed rows along an axis if the coverage is below this: an exchange of parts
/// of any length has a lower bandwidth than a collective over whole slabs. 0.72 is the ratio of both within a
/// node (hpcgroup/plexus, collective_curve.json, 64 MB).
inline constexpr double most_coverage = 0.72;

/// Numbers of rows that move along an axis, by rank of the axis.
struct NeededCounts {
  std::vector<std::int64_t> touched; // rows of each rank's slab that the block of this rank touches
  std::vector<std::int64_t> asked;   // rows of this rank's slab that the block of each rank touches
  friend bool operator==(NeededCounts const&, NeededCounts const&) = default;
};

/// Of the axes of an aggregation. Empty: all rows move.
struct NeededCountsOfAxes {
  std::optional<NeededCounts> over_c, over_a;
  friend bool operator==(NeededCountsOfAxes const&, NeededCountsOfAxes const&) = default;
};

/// The rows that move along an axis.
struct NeededSlabs {
  NeededCounts counts;
  std::vector<LocalColumn> touched;       // places in the block's list of cells, ascending
  runtime::Vector<LocalColumn> asked;     // rows of this rank's slab: for rank 0 ascending, for rank 1, ..
  runtime::Vector<Offset> addend_offsets; // [rows of the slab + 1] into:
  runtime::Vector<Offset> addends;        // places in `asked`, row by row, the lowest rank first
};

struct NeededRows {
  std::optional<NeededSlabs> over_c, over_a; // empty: all rows move
  // Mean over the group: rows that blocks touch in the slabs of other ranks, as a share of these slabs' rows.
  // Empty if the axis has one rank, and if nobody asked.
  std::optional<double> coverage_c, coverage_a;

  [[nodiscard]] NeededCountsOfAxes counts() const;
  /// Columns of the block that is left (keep_needed) of the block of cells of these sizes.
  [[nodiscard]] std::int64_t num_columns(CellSizes const& sizes) const {
    return over_c ? std::ssize(over_c->touched) : sizes.num_columns();
  }
};

/// The pattern of a block [m_c x n_a] in CSR, on the host.
struct HostPattern {
  std::vector<Offset>& row_offsets;
  std::vector<LocalColumn>& columns;
};

/// Agrees on the coverage, and exchanges the lists along the axes on which needed rows move: counts, then
/// rows, one all_to_all each. `sizes`: of the cells whose block has this pattern (Error if it does not fit).
/// Collective over the grid's group; nothing is communicated for Gather::all.
[[nodiscard]] NeededRows plan_needed_rows(ProcessGrid const& grid, Roles const& roles, CellSizes const& sizes,
                                          HostPattern const& pattern, Gather gather);

/// The pattern without the rows and columns that no entry touches, on axes where needed rows move. Entries
/// keep their order.
void keep_needed(NeededRows const& needed, HostPattern const& pattern);
/// numbers[places], where places ascend; no numbers stay none.
template<class Number>
[[nodiscard]] std::vector<Number> at_places(std::vector<Number> numbers,
                                            std::vector<LocalColumn> const& places) {
  if (numbers.empty()) return numbers;
  for (std::size_t i = 0; i < places.size(); ++i)
    numbers[i] = numbers[static_cast<std::size_t>(places[i])];
  numbers.resize(places.size());
  return numbers;
}
/// The places below `count` at which the claim holds, ascending.
template<class Claim>
[[nodiscard]] std::vector<LocalColumn> places_where(std::int64_t count, Claim const& claim) {
  std::vector<LocalColumn> places;
  for (std::int64_t i = 0; i < count; ++i)
    if (claim(static_cast<std::size_t>(i))) places.push_back(static_cast<LocalColumn>(i));
  return places;
}

/// What keep_needed() leaves of one number for each column of the block (`over_c`) or for each row (`over_a`), or of none.
[[nodiscard]] std::vector<double> keep_needed(std::optional<NeededSlabs> const& axis,
                                              std::vector<double> numbers);

// Rows of which only a part is kept. If only some rows of H := A F are wanted, only those rows of A take part,
// and only those rows of F that they touch:
//
//   H[i] is wanted       keeps row i of A, and column j of A if A[i,j] is an entry
//   F[j] is wanted       if column j is kept
//
// Every row stays with its owner, so a block of what is kept is an aggregation like any other, of cells that
// have fewer rows (cells.hpp). Chained, from the last matrix to the first, this says what a network needs for
// some of its rows. A row that is not kept has no gradient, and nothing of it is sent.

/// One number per row of a cell: 1 if it is kept, else 0.
using KeptFlags = std::vector<std::int32_t>;

/// Places of what is kept, ascending.
struct KeptRows {
  std::vector<LocalColumn> own;        // in this rank's cell
  std::vector<LocalColumn> in_columns; // in the cells that are the columns of its block
  std::vector<LocalColumn> in_rows;    // in the cells that are the rows of its block
  std::int64_t num_global = 0;         // rows that all ranks keep together
};

/// Tells the ranks of the axes of `roles` what the others keep of their cells, which have these sizes.
/// Collective over the grid's group.
[[nodiscard]] KeptRows share_kept_rows(ProcessGrid const& grid, Roles const& roles, CellSizes const& sizes,
                                       KeptFlags const& own);

/// Which rows of this rank's cell the rows in `kept` touch: columns of A with an entry in one of them.
/// `pattern`: of the block of all rows and columns. Collective over axis c.
[[nodiscard]] KeptFlags rows_touched_by(ProcessGrid const& grid, Roles const& roles, CellSizes const& sizes,
                                        HostPattern const& pattern, KeptRows const& kept);

/// The cells of a block that keeps these of its columns and these of its rows, of cells of these sizes. Not
/// collective.
[[nodiscard]] CellSizes sizes_of_kept(ProcessGrid const& grid, Roles const& roles, CellSizes const& sizes,
                                      KeptRows const& columns, KeptRows const& rows);

} // namespace orthant::pmm
