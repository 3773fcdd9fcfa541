#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Positions of the vertices. Two independent orders p1 and p2 make the blocks of A[p1, p2] equally full (Plexus, arXiv 2505.04083, section
// 5.1). In purely random orders the hubs are distributed unevenly: on a power-law graph, 8x8 blocks differ by 15 %. Here the vertices are
// distributed in rounds by degree, like cards.
//
//   Sort the vertices by degree, largest first. Deal them in rounds of B to B bins of equal size, each round
//   by a scrambled radix reversal of the place in the round:
//     j = d0 + r0 d1 + r0 r1 d2 + ..   ->   bin = ((d0 + s0) mod r0) B/r0 + ((d1 + s1) mod r1) B/(r0 r1) + ..
//   with a random shift s_i for every round and every (d0', .., d(i-1)'), so that any 2, 4, 8, .. neighbors in
//   the order of degrees go to different halves, quarters, eighths of the rows (Owen's scrambling, 1995).
//   Within its bin, a keyed bijection gives a vertex its place.
//
// p1 and p2 use different keys, and each has its own random sequence of vertices of equal degree: with a common sequence, the self loops of
// a round, which are all on related bins, would be concentrated on a few blocks. Every position is O(1) arithmetic on the vertex's place in
// the order of degrees. It needs no tables and no sorting, and is equal on any number of ranks.

#include "graph/store/distribution.hpp"
#include "runtime/numbers/random.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::graph {

/// Class of vertices with nearly equal degree: exact up to degree 1,024, then in steps of 1/64.
[[nodiscard]] std::int64_t degree_class(std::int64_t degree);
/// Number of classes: the largest class plus 1.
[[nodiscard]] std::int64_t num_degree_classes();

/// One order: maps place k in the order of degrees, largest first, to a bin and a position.
class Deal {
 public:
  /// `draw` is 0 for p1 and 1 for p2. num_bins must be a result of num_bins_for() and at most num_vertices.
  Deal(std::int64_t num_vertices, std::int64_t num_bins, std::uint64_t seed, std::uint32_t draw);

  [[nodiscard]] Cut const& bins() const { return bins_; }
  [[nodiscard]] std::int64_t bin_of(std::int64_t place) const;
  /// A permutation of [0, num_vertices).
  [[nodiscard]] std::int64_t position_of(std::int64_t place) const;

 private:
  [[nodiscard]] std::int64_t arrange(std::int64_t round, std::int64_t place_in_round) const;

  Cut bins_;
  std::uint64_t key_;
  std::vector<std::int64_t> radices_; // their product is num_bins
  runtime::KeyedBijection last_round_;
  std::vector<runtime::KeyedBijection> places_; // [num_bins]
};

/// 960 = 2^6 3 5 bins, fewer for small graphs. Fine enough to balance any axis of up to a few hundred ranks.
[[nodiscard]] std::int64_t num_bins_for(std::int64_t num_vertices);

/// Coordinate of whole clusters, heaviest first. Cluster t is the point (x, y) of a scrambled (0,2)-sequence in base 2 (Sobol', 1967;
/// scrambling by digital shifts). p1 lists the clusters by x, and p2 by y. Any 2^m neighbors in the order of weights fall one each into the
/// 2^m boxes of every dyadic grid of rows and columns. Blocks therefore have equally many clusters of every weight, while the rows of a
/// cluster, and the columns of its edges, stay together in a core's cache.
/// Returns x for draw 0 and y for draw 1, as a 64-bit fraction.
[[nodiscard]] std::uint64_t cluster_coordinate(std::uint64_t t, std::uint64_t seed, std::uint32_t draw);

// Order p1 of a store for the schedule `rows` (docs/design.md 2.2): neighbors are close to each other, and the cells of every grid, which
// are contiguous in p1, have equally many nonzeros. The order starts from an order with locality and keeps contiguous pieces of it whole:
//
//   deal(sequence):   cut the sequence into 16 pieces with equally many vertices
//                     give 8 of them to each half: halves of equal weight, with few seams
//                     deal(first half), deal(second half)
//
// until N / 16,384 vertices are left, but at least 16. Pieces keep their sequence within a half. A cell of a grid of 2^k ranks is therefore
// one half of level k: 8 pieces of a sequence that itself consists of few runs, in all 8 to 16 runs of the local order. A cell of another
// grid is a union of whole halves and of parts of small halves at its ends. The grid need not be known.

/// Runs of the local order in the order in which they follow each other in p1; together they cover [0, N). Cluster k of the local order has
/// sizes[k] vertices and weights[k] nonzeros, assumed evenly distributed over its vertices. The sum of all weights must be at most 2^50.
/// Uses only integers, so that all ranks on all machines get the same result. Cost: at most 2^15 times 6,435 sums.
[[nodiscard]] std::vector<runtime::Range> deal_pieces(std::span<std::int64_t const> sizes,
                                                      std::span<std::int64_t const> weights);

} // namespace orthant::graph
