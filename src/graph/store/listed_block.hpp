#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A block of A over rows and columns that are lists of ranges of order p1, such as the cells of several ranks (pmm/aggregate/cells.hpp).
// From a store with one order, rectangles are read. From a store with two orders, which has A[p1,p2], all columns of the rows are read,
// slab by slab, and the listed ones are kept.

#include "graph/store/store_reader.hpp"

namespace orthant::graph {

/// Positions of order p1, range after range. The ranges must not overlap.
using Ranges = std::vector<Range>;

[[nodiscard]] std::int64_t total_size(Ranges const& ranges);

/// Maps a position to its place in the list of ranges. Cost per look-up: O(log(number of ranges)).
class ListPlaces {
 public:
  explicit ListPlaces(Ranges const& ranges);
  /// Returns -1 if the position is not listed.
  [[nodiscard]] std::int64_t operator()(std::int64_t position) const;

 private:
  struct Part {
    Range range;
    std::int64_t place = 0;
  };
  std::vector<Part> sorted_;
};

/// A on the listed rows and columns, in the order of the lists: row r of the block is place r of `rows`, and columns are places in
/// `columns`. At most 2^31 of either. Not collective. Throws UserError if the store is damaged.
[[nodiscard]] CsrBlock read_listed_block(GraphStore const& store, Ranges const& rows, Ranges const& columns,
                                         SelfLoops self_loops);
/// Largest number of bytes per entry while it reads: row, column and weight as read, and column and weight in the block; and of each feature of an
/// edge, as read and in the block.
inline constexpr std::int64_t listed_entry_bytes = 20;
inline constexpr std::int64_t listed_feature_bytes = 16;
/// Bytes of the features of edges of a slab of these rows while it is read; 0 if no slabs are read.
[[nodiscard]] std::int64_t slab_feature_bytes(StoreFacts const& facts, std::int64_t num_rows);

/// The factors of the store's normalization for these rows and columns.
[[nodiscard]] Scales read_listed_scales(GraphStore const& store, Ranges const& rows, Ranges const& columns);

} // namespace orthant::graph
