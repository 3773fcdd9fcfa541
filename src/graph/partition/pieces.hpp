#pragma once
// SPDX-License-Identifier: Apache-2.0
//
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

#include "runtime/range.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::graph {

/// Runs of the local order, one after the other in p1; together they are [0, N). Cluster k of the local order
/// has sizes[k] vertices and weights[k] non-zeros, evenly spread over them; all weights together are at most
/// 2^50. Only integers are computed with, so all ranks of all machines get the same. Cost: at most 2^15 times
/// 6,435 sums.
[[nodiscard]] std::vector<runtime::Range> deal_pieces(std::span<std::int64_t const> sizes,
                                                      std::span<std::int64_t const> weights);

} // namespace orthant::graph
