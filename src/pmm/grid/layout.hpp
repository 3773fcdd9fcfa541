#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How a matrix is spread over the grid (docs/design.md 2.1). M[r,k]: rows split over axis r, columns over
// axis k, in balanced blocks whose lengths differ by at most one. Along the third axis t the block is
//
//   replicated     every rank has all of it
//   flat_sharded   its row-major memory is cut in equal pieces (the last ones padded), one a rank
//   row_sharded    its rows are split once more, in balanced parts
//
// The rows of a sampled batch lie where those of the whole graph do, so their blocks are unequal: such a
// placement carries this rank's own range in place of the balanced one.
//
// A layout also names the order in which rows and columns are numbered (docs/design.md 2.2): under double
// permutation, vertices come in order p1 or p2. Orders are labels to compare; nothing here knows what they
// mean.

#include "pmm/grid/process_grid.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace orthant::pmm {

using runtime::Range;

enum class Storage : std::uint8_t { replicated, flat_sharded, row_sharded };
enum class IndexOrder : std::uint8_t { natural, p1, p2 };

struct Layout {
  Axis rows = Axis::x;
  Axis columns = Axis::y;
  Storage storage = Storage::replicated;
  IndexOrder row_order = IndexOrder::natural;
  IndexOrder column_order = IndexOrder::natural;

  /// The axis that neither rows nor columns are split over: where this matrix communicates.
  [[nodiscard]] Axis third() const;
  /// "[x,y] flat-sharded over z, rows in order p1".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(Layout const&, Layout const&) = default;
};

struct Extents {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  friend bool operator==(Extents const&, Extents const&) = default;
};

/// The rows or columns of one part of an axis where the parts are no balanced cut: a sample of vertices
/// leaves each part as many as it happens to hold. Only the ranks of that part know it.
struct OwnRange {
  int part = 0; // coordinate along the axis
  Range range;  // numbered as the matrix's owner likes, within the part
  friend bool operator==(OwnRange const&, OwnRange const&) = default;
};

/// A matrix without its numbers.
struct Placement {
  Layout layout;
  Extents extents;
  std::optional<OwnRange> own_rows = std::nullopt; // else balanced
  std::optional<OwnRange> own_columns = std::nullopt;

  /// "2708 x 16 [x,y] flat-sharded over z, orders p2/natural".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(Placement const&, Placement const&) = default;
};

/// The block of a matrix on one rank, and the piece of the block that this rank stores. Element i of the
/// piece is element first + i of the row-major block.
struct Block {
  Range rows;
  Range columns;
  Range stored_rows;           // of the piece where it is whole rows (replicated, row_sharded), else `rows`
  std::int64_t first = 0;      // of the piece within the block
  std::int64_t num_stored = 0; // elements of the piece; without padding
  std::int64_t num_padded = 0; // length of the piece's memory, equal along the third axis where flat-sharded

  /// The largest number if there are more elements: those of A^ on few ranks, which nobody stores as such.
  [[nodiscard]] std::int64_t size() const {
    std::int64_t product = 0;
    return __builtin_mul_overflow(rows.size(), columns.size(), &product)
               ? std::numeric_limits<std::int64_t>::max()
               : product;
  }
  friend bool operator==(Block const&, Block const&) = default;
};

/// Throws Error where own rows or columns are not those of the rank at `coordinates`: nobody else knows them.
[[nodiscard]] Block block_of(GridShape const& shape, Coordinates const& coordinates,
                             Placement const& placement);
[[nodiscard]] inline Block block_of(ProcessGrid const& grid, Placement const& placement) {
  return block_of(grid.shape(), grid.coordinates(), placement);
}

/// Elements that each rank of the third axis stores (padded if flat-sharded): counts of the collectives of
/// the rank at `coordinates`. Replicated: each has them all.
[[nodiscard]] std::vector<std::int64_t> piece_counts(GridShape const& shape, Coordinates coordinates,
                                                     Placement const& placement);

/// Throws Error, printing `formula` and all three placements, unless C[r,c] = A[r,k] B[k,c] composes: three
/// different spatial axes, matching extents, orders and own ranges. An adjoint composes where its product
/// does.
void require_composes(std::string_view formula, Placement const& a, Placement const& b, Placement const& c);

} // namespace orthant::pmm
