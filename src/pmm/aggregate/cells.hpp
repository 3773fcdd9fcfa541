#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Who owns which rows if every rank has whole rows (docs/design.md 2.2): rank (x, y, z) owns a cell, and
// the cells of a group of ranks partition the rows. A block of a square matrix A over these rows belongs to
// the roles (a, b, c) that x, y and z play:
//
//   columns of the block on (a, b, c) = cells (a, b', c') of all b' and c', c' slowest
//   rows of the block on (a, b, c)    = cells (a', b', c) of all a' and b', a' slowest
//
// So columns depend on a alone, rows on c alone, and ranks that differ in b have the same block. In these
// orders a gather over c appends whole slabs and a sum over a cuts whole slabs: no row is moved within a
// rank. Any partition of the rows is right; which one decides only balance and locality.
//
// A row-major matrix [n x w] as its column parts one after the other, each [n x w_p] row-major, and back: what
// an exchange of columns against rows sends, and receives.

#include "pmm/grid/layout.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>
#include <vector>

namespace orthant::pmm {

/// Which axis is which in an aggregation: columns of A are cut over a, features over b, rows of A over c.
struct Roles {
  Axis a = Axis::x;
  Axis b = Axis::y;
  Axis c = Axis::z;
  friend bool operator==(Roles const&, Roles const&) = default;
};

/// How many rows the cells have that the rank (a, b, c) deals with: all that it must know of the others. The
/// columns of a block may be other rows than its rows are: each of them a part of the cells (needed_rows.hpp).
struct CellSizes {
  std::vector<std::int64_t> over_b;        // [ranks of b] columns in cell (a, b', c)
  std::vector<std::int64_t> over_c;        // [ranks of c] columns in the cells (a, *, c') together
  std::vector<std::int64_t> over_a;        // [ranks of a] rows in the cells (a', *, c) together
  std::vector<std::int64_t> rows_over_b{}; // [ranks of b] rows in cell (a, b', c); empty: as columns

  [[nodiscard]] std::int64_t num_columns() const; // of the block
  [[nodiscard]] std::int64_t num_rows() const;    // of the block
  [[nodiscard]] std::vector<std::int64_t> const& rows_of_b() const {
    return rows_over_b.empty() ? over_b : rows_over_b;
  }
  friend bool operator==(CellSizes const&, CellSizes const&) = default;
};

/// Cells that are contiguous: rows of a layout over all axes of the group (layout.hpp), so their sizes differ
/// by at most one along each axis.
[[nodiscard]] CellSizes contiguous_cells(GridShape const& shape, Coordinates const& coordinates,
                                         Roles const& roles, std::int64_t num_rows);

/// The ranges of those cells that are the columns of the block, and its rows: in the block's order, ranges
/// that touch made one, none of them empty.
[[nodiscard]] std::vector<Range> block_columns(GridShape const& shape, Coordinates const& coordinates,
                                               Roles const& roles, std::int64_t num_rows);
[[nodiscard]] std::vector<Range> block_rows(GridShape const& shape, Coordinates const& coordinates,
                                            Roles const& roles, std::int64_t num_rows);

/// How many of the ascending places lie in each of the slabs of these sizes, the first of which begins at
/// `begin`.
[[nodiscard]] std::vector<std::int64_t> counts_by_slab(std::vector<runtime::LocalColumn> const& places,
                                                       std::vector<std::int64_t> const& slab_rows,
                                                       std::int64_t begin = 0);

/// parts := the balanced column parts of `rows` [num_rows x width], and back. Not overlapping. Enqueue on
/// exec; do not fence. Each is a pass, which it counts.
template<class T>
void split_columns(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& rows,
                   std::int64_t num_rows, std::int64_t width, int num_parts, Vector<T> const& parts);
template<class T>
void join_columns(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& parts,
                  std::int64_t num_rows, std::int64_t width, int num_parts, Vector<T> const& rows);

} // namespace orthant::pmm
