#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Attention by the equations of its papers on dense matrices.

#include "models/gnn/plan/network_settings.hpp"
#include "models/reference/tape.hpp"

#include <cmath>
#include <vector>

namespace orthant::testing {

inline Tape::Number heads_together(Tape& tape, std::vector<Tape::Number> const& heads, bool averages) {
  if (!averages) return tape.side_by_side(heads);
  auto* mean = heads.front();
  for (std::size_t h = 1; h < heads.size(); ++h)
    mean = tape.sum(mean, heads[h]);
  return tape.times(mean, 1 / static_cast<double>(heads.size()));
}

/// Attention by dot products (Shi et al., arXiv 2009.03509, equations 3 and 4). Of head h of d columns, U = F W = [V | K | Q | S], a = [b' | b'']:
///
///   e_ij = (Q_i + b'')^T K_j / sqrt(d)      alpha_i = softmax_j(e_ij)      sum_j alpha_ij (V_j + b'); S is added to all heads, or their mean
inline Tape::Number dot_attention_of(Tape& tape, Dense const& a, Tape::Number u, Tape::Number vectors,
                                     bool averages) {
  auto const num_heads = vectors->value.rows;
  auto const d = vectors->value.columns / 2;
  std::vector<Tape::Number> heads;
  auto const by_head = tape.transpose(vectors);
  for (std::int64_t h = 0; h < num_heads; ++h) {
    auto* const both = tape.transpose(tape.columns(by_head, h, 1));
    auto* const values = tape.with_bias(tape.columns(u, h * d, d), tape.columns(both, 0, d));
    auto* const keys = tape.columns(u, (num_heads + h) * d, d);
    auto* const queries =
        tape.with_bias(tape.columns(u, (2 * num_heads + h) * d, d), tape.columns(both, d, d));
    auto* const scores =
        tape.times(tape.product(queries, tape.transpose(keys)), 1 / std::sqrt(static_cast<double>(d)));
    heads.push_back(tape.product(tape.softmax_of_rows(scores, a), values));
  }
  auto* const skipped = tape.columns(u, 3 * num_heads * d, u->value.columns - 3 * num_heads * d);
  return tape.sum(heads_together(tape, heads, averages), skipped);
}

/// Attention over the entries of A (Velickovic et al., arXiv 1710.10903, equations 3 to 6; Brody et al., arXiv 2105.14491, equation 7),
/// beta(z) = z if z > 0, else 0.2 z. Of head h with d columns, U = F W:
///
///   GAT      Z = U_h, a = [a' | a'']        e_ij = beta(a'^T Z_i + a''^T Z_j)        alpha_i = softmax_j(e_ij)        Q_i = sum_j alpha_ij Z_j
///   GATv2    R = U_h, L = U_(heads + h)     e_ij = a^T beta(L_i + R_j)               the same                         Q_i = sum_j alpha_ij R_j
inline Tape::Number attention_of(Tape& tape, models::AttentionKind kind, Dense const& a, Tape::Number u,
                                 Tape::Number vectors, bool averages) {
  if (kind == models::AttentionKind::transformer) return dot_attention_of(tape, a, u, vectors, averages);
  auto const is_v2 = kind == models::AttentionKind::gatv2;
  auto const num_heads = vectors->value.rows;
  auto const d = vectors->value.columns / (is_v2 ? 1 : 2);
  auto const slope = 0.2;
  std::vector<Tape::Number> heads;
  auto const by_head = tape.transpose(vectors); // a column per head
  for (std::int64_t h = 0; h < num_heads; ++h) {
    auto* const values = tape.columns(u, h * d, d);
    Tape::Number scores = nullptr;
    if (is_v2) {
      auto* const left = tape.columns(u, (num_heads + h) * d, d);
      for (std::int64_t c = 0; c < d; ++c) {
        auto* const z = tape.outer_sum(tape.columns(left, c, 1), tape.columns(values, c, 1));
        auto* const term = tape.times(tape.leaky_relu(z, slope), vectors, h, c);
        scores = scores == nullptr ? term : tape.sum(scores, term);
      }
    } else {
      auto* const both = tape.columns(by_head, h, 1);
      auto const half = [&](std::int64_t first) {
        return tape.product(values, tape.transpose(tape.columns(tape.transpose(both), first, d)));
      };
      scores = tape.leaky_relu(tape.outer_sum(half(0), half(d)), slope);
    }
    heads.push_back(tape.product(tape.softmax_of_rows(scores, a), values));
  }
  return heads_together(tape, heads, averages);
}

} // namespace orthant::testing
