#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Tiles of the matrices of a network, for optimizers that need more than single numbers of a matrix. A matrix is cut into tiles of at most
// side x side numbers, by global rows and columns. Each tile has one owner among the ranks of the group, which gets the tile's gradient
// from the ranks that store pieces of it, and sends them the result. The cut does not depend on the grid, and so neither do the results.
//
//   matrix 5 x 7, side 4        tiles 4 x 4, 4 x 3, 1 x 4, 1 x 3

#include "models/parameters/parameter.hpp"

#include <cstdint>
#include <vector>

namespace orthant::models {

/// A trained matrix, and the piece of it that a rank stores.
struct TiledMatrix {
  std::size_t parameter = 0; // its place among the trained parameters
  pmm::Extents extents;
  pmm::Block piece;
  bool is_first_copy = true;   // of equal copies of the piece in the group
  std::int64_t num_copies = 1; // of each number in the group

  /// Makes the piece these elements of the block, which no other rank stores.
  void set_piece(pmm::Range const& elements) {
    piece.first = elements.begin;
    piece.num_stored = elements.size();
    is_first_copy = true;
    num_copies = 1;
  }
};
/// The matrix with this placement on the rank that `step` plans. Without extents, and so without tiles, if ranks of another stage of a
/// pipeline have it.
[[nodiscard]] TiledMatrix tiled_matrix(pmm::StepPlan const& step, std::size_t parameter,
                                       pmm::Placement const& placement);

struct Tile {
  std::size_t matrix = 0;
  pmm::Range rows, columns;
  int owner = 0; // rank within the group

  [[nodiscard]] std::int64_t size() const { return rows.size() * columns.size(); }
};

/// The extents of a matrix's tiles, by row, then by column.
[[nodiscard]] std::vector<pmm::Extents> tile_extents(pmm::Extents const& matrix, std::int64_t side);

/// Tiles of the matrices, by matrix, then by row, then by column. The most expensive ones are dealt first, each to the rank with the
/// smallest sum of costs so far, so all ranks deal them alike. Cost: O(tiles log(tiles + owners)).
[[nodiscard]] std::vector<Tile> deal_tiles(std::vector<TiledMatrix> const& matrices, std::int64_t side,
                                           int num_owners);

/// A part of a piece of a matrix that lies in a tile: global rows and columns.
struct TilePart {
  pmm::Range rows, columns;
  [[nodiscard]] std::int64_t size() const { return rows.size() * columns.size(); }
};
/// At most three parts: of a row, of whole rows, and of a row of the piece's block. Together they are the piece within the tile.
[[nodiscard]] std::vector<TilePart> parts_of(pmm::Block const& piece, Tile const& tile);

/// Sizes of the tiles of one rank, and of its messages, in numbers.
struct TileSizes {
  std::int64_t num_owned = 0; // in tiles of this rank
  std::int64_t num_left = 0,
               num_right = 0;    // sums of the squared heights, and of the squared widths, of its tiles
  std::int64_t longest_side = 0; // of its tiles
  std::int64_t num_foreign = 0;  // that this rank stores and another rank owns
  std::int64_t num_given = 0, num_taken = 0; // of gradients that it sends to owners, and receives as an owner
  std::int64_t num_returned = 0;             // of results that it sends as an owner
  std::int64_t num_kept = 0;                 // that it both stores and owns
  std::int64_t num_in_own =
      0; // those of num_kept of which it has the first copy: only these are copied into the tile
  std::int64_t step_flops = 0;    // of L G R for its tiles
  std::int64_t refresh_flops = 0; // of new L and R for its tiles (jorge.hpp)
};
[[nodiscard]] TileSizes sizes_of(std::vector<TiledMatrix> const& matrices, std::vector<Tile> const& tiles,
                                 int own_rank);

} // namespace orthant::models
