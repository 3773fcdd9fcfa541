#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The arrays of an open store, read with their checksums: rows of plain arrays, and rectangles of a tiled
// matrix. What GraphStore is made of.

#include "graph/store_reader.hpp"
#include "graph/tile_grid.hpp"
#include "runtime/hdf5_file.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

/// Elements `wanted` of one row of an array (row 0 where it has one dimension). The full chunks among them
/// are compared with their checksums; a long range is widened to whole chunks, so that all of it is.
template<class T>
[[nodiscard]] std::vector<T> read_checked(runtime::Hdf5File const& file, std::string const& name,
                                          std::int64_t row, Range wanted);

/// A rectangle of the matrix under `group`, each tile checked. Columns ascend within a row.
[[nodiscard]] CsrBlock read_tiles(runtime::Hdf5File const& file, std::string const& group, Range rows,
                                  Range columns, std::int64_t num_rows, std::int64_t num_columns);

/// The transpose; rows and columns_range change places.
[[nodiscard]] CsrBlock transposed(CsrBlock const& block);

/// Compares all checksums of this part of the file: every array's rows of chunks and every matrix's rows of
/// tiles are dealt to `num_parts`. UserError names the first array that is wrong.
void verify_part(runtime::Hdf5File const& file, int part, int num_parts);

} // namespace orthant::graph
