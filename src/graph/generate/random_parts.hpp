#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Features, labels and a split for graphs that have none. Every number is drawn by (seed, purpose, original
// vertex id), so it is the same for any number of ranks, any grid and any permutation.

#include "graph/graph_source.hpp"
#include "graph/text/text_blocks.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace orthant::graph {

/// [num_vertices x num_features], standard normal.
[[nodiscard]] FeaturePart random_features(std::int64_t num_vertices, std::int64_t num_features,
                                          std::uint64_t seed, Share share);

/// One class a vertex, uniform.
[[nodiscard]] LabelPart random_labels(std::int64_t num_vertices, std::int64_t num_classes, std::uint64_t seed,
                                      Share share);

/// The vertices in a random order: the first fraction trains, the next validates, the next tests, the rest is
/// in none. List lengths are the fractions of num_vertices, rounded. Throws UserError where a fraction is
/// negative, or all of them are above 1 together.
[[nodiscard]] SplitPart random_split(std::int64_t num_vertices, std::array<double, 3> fractions,
                                     std::uint64_t seed, Share share);

} // namespace orthant::graph
