#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which rank owns which rows if every rank has whole rows (docs/design.md 2.2). Rank (x, y, z) owns a set of rows,
// its cell; the cells of a group of ranks partition the rows. The axes x, y and z take the roles a, b and c in some
// order. The roles say which block of a square matrix A over these rows a rank has:
//
//   columns of the block on (a, b, c) = cells (a, b', c') of all b' and c', c' slowest
//   rows of the block on (a, b, c)    = cells (a', b', c) of all a' and b', a' slowest
//
// So the columns depend only on a, the rows only on c, and ranks that differ in b have the same block. The cells of
// all b' for one c' (or one a') are a slab. In these orders a gather over c appends whole slabs, and a sum over a
// splits into whole slabs, so no row moves within a rank. Any partition of the rows is correct; the choice affects
// only balance and locality.

#include "pmm/grid/layout.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>
#include <vector>

namespace orthant::pmm {

/// Roles of the axes in an aggregation: columns of A are partitioned over a, features over b, rows of A over c.
struct Roles {
  Axis a = Axis::x;
  Axis b = Axis::y;
  Axis c = Axis::z;
  friend bool operator==(Roles const&, Roles const&) = default;
};

/// Numbers of rows in the cells with which rank (a, b, c) exchanges rows. A rank does not know the sizes of other cells. If a block keeps
/// only a part of the rows, its columns and its rows may be different parts of the cells (needed_rows.hpp).
struct CellSizes {
  std::vector<std::int64_t> over_b;        // [ranks of b] columns in cell (a, b', c)
  std::vector<std::int64_t> over_c;        // [ranks of c] columns in the cells (a, *, c') together
  std::vector<std::int64_t> over_a;        // [ranks of a] rows in the cells (a', *, c) together
  std::vector<std::int64_t> rows_over_b{}; // [ranks of b] rows in cell (a, b', c); empty if equal to over_b

  [[nodiscard]] std::int64_t num_columns() const; // of the block
  [[nodiscard]] std::int64_t num_rows() const;    // of the block
  [[nodiscard]] std::vector<std::int64_t> const& rows_of_b() const {
    return rows_over_b.empty() ? over_b : rows_over_b;
  }
  friend bool operator==(CellSizes const&, CellSizes const&) = default;
};

/// Sizes if the rows are split evenly: each cell has the rows that a layout split over all axes of the group gives it
/// (pmm/grid/layout.hpp). Along each axis the sizes differ by at most one.
[[nodiscard]] CellSizes contiguous_cells(GridShape const& shape, Coordinates const& coordinates,
                                         Roles const& roles, std::int64_t num_rows);

/// Row ranges of the contiguous cells that are the columns of this rank's block, and the rows of the block, in the
/// block's order. Adjacent ranges are merged; none is empty.
[[nodiscard]] std::vector<Range> block_columns(GridShape const& shape, Coordinates const& coordinates,
                                               Roles const& roles, std::int64_t num_rows);
[[nodiscard]] std::vector<Range> block_rows(GridShape const& shape, Coordinates const& coordinates,
                                            Roles const& roles, std::int64_t num_rows);

/// Number of `places` in each slab. `places` must be ascending; `slab_rows` are the sizes of the slabs, the first of
/// which begins at `begin`.
[[nodiscard]] std::vector<std::int64_t> counts_by_slab(std::vector<runtime::LocalColumn> const& places,
                                                       std::vector<std::int64_t> const& slab_rows,
                                                       std::int64_t begin = 0);

// An exchange of columns against rows sends a row-major matrix [n x w] as balanced column parts, one after the other. Each part is [n x
// w_p], row-major.

/// split_columns: parts := the column parts of `rows` [num_rows x width]. join_columns: the inverse. The arrays must
/// not overlap. Enqueue on exec; do not fence. Each call adds one pass to `passes`.
template<class T>
void split_columns(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& rows,
                   std::int64_t num_rows, std::int64_t width, int num_parts, Vector<T> const& parts);
template<class T>
void join_columns(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& parts,
                  std::int64_t num_rows, std::int64_t width, int num_parts, Vector<T> const& rows);

} // namespace orthant::pmm
