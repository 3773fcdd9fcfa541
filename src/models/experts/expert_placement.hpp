#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which rank along the expert axis has which experts, by how often they were chosen before. Every rank has equally many. The experts are
// taken from the most chosen to the least, each by the rank with the least load so far that has room (longest processing time first).
// As ranks fill up, that may end worse than in order; experts then stay in order. Nothing but the place of an expert changes: what tokens
// choose, and what is computed, does not.
//
// Source: Graham, Bounds on multiprocessing timing anomalies (1969); for experts MoETuner (arXiv 2502.06643).

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::models {

/// The place of each expert, if the ranks take places one after the other: in order, unless another order lowers the load of the
/// fullest rank. `loads` [experts]; of equal ones the expert with the lower number comes first. Experts of a rank lie in the order of their
/// numbers. Throws Error if the ranks do not divide the experts.
[[nodiscard]] std::vector<std::int64_t> balanced_places(std::span<std::int64_t const> loads, int num_ranks);

/// The load of the fullest rank over the mean; `places` may be empty: experts are dealt in order. 1 if no expert has any load.
[[nodiscard]] double imbalance_of_ranks(std::span<std::int64_t const> loads,
                                        std::span<std::int64_t const> places, int num_ranks);

} // namespace orthant::models
