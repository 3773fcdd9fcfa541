#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Layout of a matrix on the process grid (docs/design.md 2.1). M[r,k] has its rows split over axis r and its columns over axis k,
// in balanced blocks whose lengths differ by at most one. Each of r and k is one axis, several axes or none. Without an axis, the
// rows or columns are whole. Several axes split in nested order: first over the slowest axis (nested_axes from its end), then each
// part over the next axis, so M[{x,y,z},k] refines M[z,k]. Rows or columns that belong together, such as those of an attention head
// or a sequence, form a granule, which is not split unless it has a tail (Granule).
//
// The axes of the group that remain form the third axis t. A block is stored along it in one of these forms:
//
//   replicated     every rank has all of it
//   flat_sharded   its row-major memory is cut in equal pieces (the last ones padded), one per rank
//   row_sharded    its rows are split once more, in balanced parts
//   partial        every rank has an addend of it; a reader must sum the addends first
//
// Each row of a sampled batch is on the ranks that have this row of the whole graph, so the blocks are unequal. The placement of such
// a matrix contains this rank's own range in place of the balanced one. A flat shard that is part of a longer array
// (pmm/matrix/flat_array.hpp) has its own range of elements, because that array is not cut at equal pieces of this matrix.
//
// A layout also names the order in which rows and columns are numbered. These names are only compared.

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
  // Implied by the line above, but nvcc does not emit it unless it is declared.
  friend constexpr bool operator==(IndexOrder const&, IndexOrder const&) = default;
};
inline constexpr IndexOrder natural_order{"natural"};

/// Size of a group of rows or columns that belong together. A granule is split only if it has a tail and there are more parts than
/// granules. Then each granule is split over the same number of parts: its first size - tail indices in equal pieces, and the last
/// part also gets the last `tail` indices.
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
  Granule row_granule = 1; // must divide the number of rows
  Granule column_granule = 1;

  /// Axes of the group over which neither rows nor columns are split. The matrix communicates only along them. Throws Error if rows
  /// and columns share an axis, or are split over an axis other than x, y and z.
  [[nodiscard]] AxisSet third() const;
  /// Returns for example "[x,y] flat-sharded over z, orders shuffled/natural".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(Layout const&, Layout const&) = default;
};

struct Extents {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  friend bool operator==(Extents const&, Extents const&) = default;
};

/// Rows or columns of one part of an axis if the parts are not balanced: in a sampled batch each part has as many rows as were
/// sampled from it. Only the ranks of that part know the range.
struct OwnRange {
  int part = 0; // number of the part along the axis
  Range range;  // rows or columns as the creator of the matrix numbers them
  friend bool operator==(OwnRange const&, OwnRange const&) = default;
};

/// Layout and extents of a matrix, without its values.
struct Placement {
  /// The same for a rank that stores nothing of the matrix.
  [[nodiscard]] Placement elsewhere() const {
    auto nothing = *this;
    nothing.own_piece = Range{0, 0};
    return nothing;
  }
  [[nodiscard]] bool is_elsewhere() const { return own_piece && own_piece->size() == 0; }

  Layout layout;
  Extents extents;
  std::optional<OwnRange> own_rows = std::nullopt; // if absent: balanced
  std::optional<OwnRange> own_columns = std::nullopt;
  /// Elements of the block that this rank stores; if absent: equal pieces. Flat-sharded; or {0, 0} for a matrix of any storage that this
  /// rank does not have.
  std::optional<Range> own_piece = std::nullopt;

  /// Returns for example "2708 x 16 [x,y] flat-sharded over z, orders shuffled/natural".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(Placement const&, Placement const&) = default;
};

/// The block of a matrix on one rank, and the piece of the block that this rank stores. Element i of the
/// piece is element first + i of the row-major block.
struct Block {
  Range rows;
  Range columns;
  Range stored_rows;           // rows of the piece if it has whole rows; `rows` if flat-sharded
  std::int64_t first = 0;      // first element of the piece
  std::int64_t num_stored = 0; // elements of the piece, without padding
  std::int64_t num_padded = 0; // length of the piece's memory, equal along the third axis if flat-sharded

  /// Number of elements; the largest std::int64_t if there are more. This happens only for sparse matrices on few ranks.
  [[nodiscard]] std::int64_t size() const {
    std::int64_t product = 0;
    return __builtin_mul_overflow(rows.size(), columns.size(), &product)
               ? std::numeric_limits<std::int64_t>::max()
               : product;
  }
  friend bool operator==(Block const&, Block const&) = default;
};

/// Range of the rank at `coordinates` if `count` rows or columns are split over these axes in whole granules, or in pieces of
/// granules with a tail. The granule size must divide `count`; otherwise throws Error.
[[nodiscard]] Range part_of(GridShape const& shape, Coordinates const& coordinates, AxisSet axes,
                            std::int64_t count, Granule const& granule = {});
/// Size of the largest of these parts.
[[nodiscard]] std::int64_t largest_part(GridShape const& shape, AxisSet axes, std::int64_t count,
                                        Granule const& granule = {});
/// Number of the part along these axes that contains `index`, 0 <= index < count. Throws Error if granules have a tail.
[[nodiscard]] int part_holding(GridShape const& shape, AxisSet axes, std::int64_t count, std::int64_t index,
                               Granule const& granule = {});

/// Block of the rank at `coordinates`. Throws Error if the placement has own rows or columns of another part than this rank's,
/// because only the ranks of a part know its range.
[[nodiscard]] Block block_of(GridShape const& shape, Coordinates const& coordinates,
                             Placement const& placement);
/// Upper bound of Block::num_padded over all ranks: the same number on all of them. With own rows, columns or an own piece, which no other
/// rank knows, it is the number of this rank.
[[nodiscard]] std::int64_t largest_piece(GridShape const& shape, Placement const& placement);
[[nodiscard]] inline Block block_of(ProcessGrid const& grid, Placement const& placement) {
  return block_of(grid.shape(), grid.coordinates(), placement);
}

/// Numbers of elements that the ranks of the third axis store (padded if flat-sharded): the counts for collectives of the rank at
/// `coordinates`. If replicated, each rank stores all. Throws Error if the placement has an own piece.
[[nodiscard]] std::vector<std::int64_t> piece_counts(GridShape const& shape, Coordinates const& coordinates,
                                                     Placement const& placement);

/// Throws Error, which prints `formula` and all three placements, unless C[r,c] = A[r,k] B[k,c] composes: r, k and c share no axis
/// and together are x, y and z, and the extents, orders, granules and own ranges match. If a product composes, so do its adjoints.
void require_composes(std::string_view formula, Placement const& a, Placement const& b, Placement const& c);

} // namespace orthant::pmm
