#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which vertex stands where. Two independent orders p1 and p2 of the vertices make the blocks of A[p1, p2]
// equally full (Plexus, arXiv 2505.04083, section 5.1). A purely random draw leaves the hubs to chance: on a
// power-law graph 8x8 blocks are 15 % off. Here vertices are dealt by degree.
//
//   Sort the vertices by degree, largest first. Deal them in rounds of B to B bins of equal size, each round
//   by a scrambled radix reversal of the place in the round:
//     j = d0 + r0 d1 + r0 r1 d2 + ..   ->   bin = ((d0 + s0) mod r0) B/r0 + ((d1 + s1) mod r1) B/(r0 r1) + ..
//   with a random shift s_i for every round and every (d0', .., d(i-1)'), so any 2, 4, 8, .. neighbours in
//   the order of degrees go to different halves, quarters, eighths of the rows (Owen's scrambling, 1995).
//   Within its bin a vertex takes a place drawn by a keyed bijection.
//
// The draws for p1 and p2 have keys of their own, and vertices of equal degree their own random sequence in
// each: with one sequence the self loops of a round, all on related bins, would pile up on a few blocks.
// Every position is O(1) arithmetic on the vertex's place in the order of degrees: no tables, no sorting, the
// same on any number of ranks.

#include "graph/store/distribution.hpp"
#include "runtime/numbers/random.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::graph {

/// Vertices of one class are as good as equal in degree: exact up to 1,024, then in steps of 1/64.
[[nodiscard]] std::int64_t degree_class(std::int64_t degree);
/// One above the largest class there is.
[[nodiscard]] std::int64_t num_degree_classes();

/// One draw: place k in the order of degrees, largest first -> bin, and position.
class Deal {
 public:
  /// `draw` 0 makes p1 and 1 makes p2. num_bins <= num_vertices, one of those of num_bins_for().
  Deal(std::int64_t num_vertices, std::int64_t num_bins, std::uint64_t seed, std::uint32_t draw);

  [[nodiscard]] Cut const& bins() const { return bins_; }
  [[nodiscard]] std::int64_t bin_of(std::int64_t place) const;
  /// A permutation of [0, num_vertices).
  [[nodiscard]] std::int64_t position_of(std::int64_t place) const;

 private:
  [[nodiscard]] std::int64_t arrange(std::int64_t round, std::int64_t place_in_round) const;

  Cut bins_;
  std::uint64_t key_;
  std::vector<std::int64_t> radices_; // product: num_bins
  runtime::KeyedBijection last_round_;
  std::vector<runtime::KeyedBijection> places_; // [num_bins]
};

/// 960 = 2^6 3 5 bins, fewer for small graphs: fine enough to balance any axis of up to some hundred ranks.
[[nodiscard]] std::int64_t num_bins_for(std::int64_t num_vertices);

/// Where whole clusters stand, heaviest first: cluster t is the point (x, y) of a scrambled (0,2)-sequence in
/// base 2 (Sobol', 1967; scrambling by digital shifts), p1 lists the clusters by x and p2 by y. Any 2^m
/// neighbours in the order of weights fall one each into the 2^m boxes of every dyadic grid of rows and
/// columns, so blocks hold equally many clusters of every weight, while a cluster's rows, and the columns
/// that its edges lead to, stay together in a core's cache. Draw 0 gives x and 1 gives y, as 64-bit
/// fractions.
[[nodiscard]] std::uint64_t cluster_coordinate(std::uint64_t t, std::uint64_t seed, std::uint32_t draw);

// Order p1 of a store that is made for owners of vertices (docs/design.md 2.2, `rows`): neighbours stand together,
// and the cells of every grid, which are contiguous in p1, have equally many non-zeros. It starts from an order
// with locality, of which it keeps contiguous pieces whole:
//
//   deal(sequence):   cut the sequence in 16 pieces of equally many vertices
//                     give 8 of them to each half: halves of equal weight, with few seams
//                     deal(first half), deal(second half)
//
// until N / 16,384 vertices are left, but not fewer than 16. Pieces keep their sequence within a half. So a cell
// of a grid of 2^k ranks is one half of the level k: 8 pieces of a sequence that was itself made of few runs, some
// 8 to 16 runs of the local order. A cell of another grid is a union of whole halves, and of parts of small ones
// at its ends. No grid needs to be known.

/// Runs of the local order, one after the other in p1; together they are [0, N). Cluster k of the local order
/// has sizes[k] vertices and weights[k] non-zeros, evenly spread over them; all weights together are at most
/// 2^50. Only integers are computed with, so all ranks of all machines get the same. Cost: at most 2^15 times
/// 6,435 sums.
[[nodiscard]] std::vector<runtime::Range> deal_pieces(std::span<std::int64_t const> sizes,
                                                      std::span<std::int64_t const> weights);

} // namespace orthant::graph
