#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Rows of which only a part is kept. If only some rows of H := A F are wanted, only those rows of A take part,
// and only those rows of F that they touch:
//
//   H[i] is wanted       keeps row i of A, and column j of A if A[i,j] is an entry
//   F[j] is wanted       if column j is kept
//
// Every row stays with its owner, so a block of what is kept is an aggregation like any other, of cells that
// have fewer rows (cells.hpp). Chained, from the last matrix to the first, this says what a network needs for
// some of its rows. A row that is not kept has no gradient, and nothing of it is sent.

#include "pmm/aggregate/needed_rows.hpp"

#include <cstdint>
#include <vector>

namespace orthant::pmm {

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
