#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How well scores tell links from pairs that are none, as the evaluator of the Open Graph Benchmark defines it (Hu et al., arXiv
// 2005.00687; its package ogb.linkproppred). With positives p and all negatives q of a split:
//
//   AUC      ( #(p > q) + #(p = q) / 2 ) / (n_p n_q)
//   rank_p   1 + ( #(q > p) + #(q >= p) ) / 2        the mean of the optimistic and the pessimistic rank of ties
//   MRR      mean of 1 / rank_p
//   Hits@K   share of the positives with p > the K-th largest q; 1 if there are fewer than K negatives
//
// The Open Graph Benchmark ranks each positive among negatives of its own for MRR; here all positives have the same ones.

#include "models/core/vertex_loss.hpp"
#include "runtime/comm/communicator.hpp"

#include <span>

namespace orthant::models {

/// Of the scores that all ranks give. Also the mean of binary cross-entropy, and how many scores have the right sign (0 is that of a
/// negative). If the loss is not finite, nothing is ranked. Every rank holds all negatives' scores, 8 bytes each. Cost: a sort of
/// them, and two searches for each of the rank's positives. Collective over `comm`.
[[nodiscard]] SplitScore score_links(runtime::Communicator const& comm, std::span<double const> positives,
                                     std::span<double const> negatives);

/// The most that it holds on a rank at a time, with the scores that it is given.
[[nodiscard]] std::int64_t bytes_of_link_scores(graph::StoreFacts const& facts);

} // namespace orthant::models
