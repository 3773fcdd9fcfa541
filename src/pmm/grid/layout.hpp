#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How a matrix is spread over the grid (docs/design.md 2.1). M[r,k]: rows split over axis r, columns over
// axis k, in balanced blocks whose lengths differ by at most one. Each of r and k is an axis, several axes or
// none. No axis leaves rows or columns whole. Several cut them in nested order: the slowest axis first
// (nested_axes from its end), each part over the next one, so M[{x,y,z},k] refines M[z,k]. Rows or columns
// that belong together, such as those of an attention head or a sequence, are a granule: no cut divides it,
// unless it says how (Granule).
//
// The axes that are left are the third axis t. Along it the block is
//
//   replicated     every rank has all of it
//   flat_sharded   its row-major memory is cut in equal pieces (the last ones padded), one per rank
//   row_sharded    its rows are split once more, in balanced parts
//   partial        every rank has an addend of it, which whoever reads the block sums first
//
// The rows of a sampled batch lie where those of the whole graph do, so their blocks are unequal: such a
// placement carries this rank's own range in place of the balanced one. So does a flat shard that is a part of
// a longer array (pmm/matrix/flat_array.hpp), whose cuts do not fall on equal pieces of this matrix.
//
// A layout also names the order in which rows and columns are numbered, if there is more than one. Orders
// are names to compare; nothing here knows what they mean.

#include "pmm/grid/process_grid.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::pmm {

using runtime::Range;

enum class Storage : std::uint8_t { replicated, flat_sharded, row_sharded, partial };
struct IndexOrder {
  std::string_view name; // must live as long as the program
  friend constexpr auto operator<=>(IndexOrder const&, IndexOrder const&) = default;
  // Implied by the line above, but nvcc then leaves it out of the object.
  friend constexpr bool operator==(IndexOrder const&, IndexOrder const&) = default;
};
inline constexpr IndexOrder natural_order{"natural"};

/// Rows or columns that belong together. A granule with a tail may be cut if there are more parts than granules: a whole
/// number of parts per granule have equal pieces of it, and the last of them its last `tail` indices, too.
struct Granule {
  constexpr Granule(std::int64_t of_size = 1, std::int64_t of_tail = 0) // NOLINT: implicit on purpose
      : size(of_size),
        tail(of_tail) {}
  std::int64_t size;
  std::int64_t tail;
  friend bool operator==(Granule const&, Granule const&) = default;
};

struct Layout {
  AxisSet rows = Axis::x;
  AxisSet columns = Axis::y;
  Storage storage = Storage::replicated;
  IndexOrder row_order = natural_order;
  IndexOrder column_order = natural_order;
  Granule row_granule = 1; // divides the number of rows
  Granule column_granule = 1;

  /// The axes of the group that neither rows nor columns are split over: where this matrix communicates.
  /// Throws Error if rows and columns share an axis, or are split over data.
  [[nodiscard]] AxisSet third() const;
  /// "[x,y] flat-sharded over z, rows in order shuffled".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(Layout const&, Layout const&) = default;
};

struct Extents {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  friend bool operator==(Extents const&, Extents const&) = default;
};

/// The rows or columns of one part of an axis if the parts are not a balanced cut: a sample of rows leaves
/// each part with as many as it happens to hold. Only the ranks of that part know the range.
struct OwnRange {
  int part = 0; // place along the axis
  Range range;  // within the part; the owner of the matrix chooses the numbers
  friend bool operator==(OwnRange const&, OwnRange const&) = default;
};

/// A matrix without its numbers.
struct Placement {
  Layout layout;
  Extents extents;
  std::optional<OwnRange> own_rows = std::nullopt; // else balanced
  std::optional<OwnRange> own_columns = std::nullopt;
  std::optional<Range> own_piece =
      std::nullopt; // elements of the block; else equal pieces. Flat-sharded only

  /// "2708 x 16 [x,y] flat-sharded over z, orders shuffled/natural".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(Placement const&, Placement const&) = default;
};

/// The block of a matrix on one rank, and the piece of the block that this rank stores. Element i of the
/// piece is element first + i of the row-major block.
struct Block {
  Range rows;
  Range columns;
  Range stored_rows;           // of the piece if it is whole rows (replicated, row_sharded), else `rows`
  std::int64_t first = 0;      // of the piece within the block
  std::int64_t num_stored = 0; // elements of the piece; without padding
  std::int64_t num_padded = 0; // length of the piece's memory, equal along the third axis if flat-sharded

  /// The largest number if there are more elements: those of A^ on few ranks, which nobody stores as such.
  [[nodiscard]] std::int64_t size() const {
    std::int64_t product = 0;
    return __builtin_mul_overflow(rows.size(), columns.size(), &product)
               ? std::numeric_limits<std::int64_t>::max()
               : product;
  }
  friend bool operator==(Block const&, Block const&) = default;
};

/// Which of `count` rows or columns the rank at `coordinates` has if they are cut over these axes in whole
/// granules, which divide `count` (Error), or in pieces of granules with a tail.
[[nodiscard]] Range part_of(GridShape const& shape, Coordinates const& coordinates, AxisSet axes,
                            std::int64_t count, Granule const& granule = {});
/// The place along these axes whose part holds `index`, one of `count`. Granules have no tail (Error).
[[nodiscard]] int part_holding(GridShape const& shape, AxisSet axes, std::int64_t count, std::int64_t index,
                               Granule const& granule = {});

/// Throws Error if own rows or columns are not those of the rank at `coordinates`: nobody else knows them.
[[nodiscard]] Block block_of(GridShape const& shape, Coordinates const& coordinates,
                             Placement const& placement);
[[nodiscard]] inline Block block_of(ProcessGrid const& grid, Placement const& placement) {
  return block_of(grid.shape(), grid.coordinates(), placement);
}

/// Elements that each rank of the third axis stores (padded if flat-sharded): counts of the collectives of
/// the rank at `coordinates`. Replicated: each has them all. Throws Error if the placement has an own piece.
[[nodiscard]] std::vector<std::int64_t> piece_counts(GridShape const& shape, Coordinates const& coordinates,
                                                     Placement const& placement);

/// Throws Error, printing `formula` and all three placements, unless C[r,c] = A[r,k] B[k,c] composes: r, k
/// and c share no axis and are x, y and z together; matching extents, orders and own ranges. An adjoint
/// composes if its product does.
void require_composes(std::string_view formula, Placement const& a, Placement const& b, Placement const& c);

} // namespace orthant::pmm
