#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A block of A over rows and columns that are lists of ranges of order p1, such as the cells of several owners
// (pmm/aggregate/cells.hpp). A store of one order has rectangles for it. One of two orders has A[p1,p2]: all
// columns of the rows are read, slab by slab, and those in the list are kept.

#include "graph/store/store_reader.hpp"

namespace orthant::graph {

/// Positions of order p1, range after range; the ranges do not overlap.
using Ranges = std::vector<Range>;

[[nodiscard]] std::int64_t total_size(Ranges const& ranges);

/// The place of a position in the list that ranges make. Cost of a look-up: O(log of the ranges).
class ListPlaces {
 public:
  explicit ListPlaces(Ranges const& ranges);
  /// -1 if it is not listed.
  [[nodiscard]] std::int64_t operator()(std::int64_t position) const;

 private:
  struct Part {
    Range range;
    std::int64_t place = 0;
  };
  std::vector<Part> sorted_;
};

/// A on the listed rows and columns, in the order of the lists: row r of the block is place r of `rows`, and
/// columns are counted along `columns`. At most 2^31 of either. Not collective; throws as the store does.
[[nodiscard]] CsrBlock read_listed_block(GraphStore const& store, Ranges const& rows, Ranges const& columns,
                                         SelfLoops self_loops);
/// Bytes that it holds per entry at most: a row, a column and a weight as they are read, a column and a weight in the block.
inline constexpr std::int64_t listed_entry_bytes = 20;

/// The factors of the store's normalisation for these rows and columns.
[[nodiscard]] Scales read_listed_scales(GraphStore const& store, Ranges const& rows, Ranges const& columns);

} // namespace orthant::graph
