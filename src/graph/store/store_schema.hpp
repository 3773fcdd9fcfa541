#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which arrays the facts of a store imply, of which types and extents. Whoever opens a store compares them
// with what the file has, so that no reader meets an array of another shape.

#include "graph/store/store_file.hpp"
#include "graph/store/tile_grid.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

/// A matrix in tiles and its extents.
struct TiledGroup {
  std::string group;
  std::int64_t num_rows;
  std::int64_t num_columns;
  std::int64_t num_entries;
  bool has_values;
};
[[nodiscard]] std::vector<TiledGroup> tiled_groups(StoreFacts const& facts);

/// "p1" and, if the store has two orders, "p2".
[[nodiscard]] std::vector<std::string> order_names(StoreFacts const& facts);

/// The arrays with one value per vertex or one row per class or feature: all that are not tiled. Without
/// their checksums.
[[nodiscard]] std::vector<std::string> plain_array_names(StoreFacts const& facts);

/// The name of the array of links of a part: "/links/valid/positives".
[[nodiscard]] std::string links_array(Split part, LinkKind kind);

/// All arrays of a store with these facts, those of checksums included.
[[nodiscard]] std::vector<std::string> array_names(StoreFacts const& facts);

/// Bytes of all arrays of a store with these facts and no more than 2^31 vertices, without checksums of plain arrays.
[[nodiscard]] std::int64_t bytes_of_arrays(StoreFacts const& facts);

/// How the matrix under `group` is cut. Throws UserError naming `file` if the tables' extents do not fit.
[[nodiscard]] TileGrid tile_grid_of(StoreCatalogue const& catalogue, TiledGroup const& group,
                                    std::string const& file);

/// Throws UserError naming `file` and the array if one is missing, of another type or shape than the facts
/// imply, or beyond the end of the file.
void check_catalogue(StoreCatalogue const& catalogue, std::string const& file);

} // namespace orthant::graph
