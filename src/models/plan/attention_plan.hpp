#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A layer of attention over neighbours before it meets a graph. With H heads of d columns, the columns of a layer's U = F W are
// those of head 0, of head 1, ..:
//
//   GAT      U = [Z_0 | Z_1 | ..]                  a_h = [a_h of the row | a_h of the column], 2 d numbers
//            score of (i, j): leaky(<a_h row, Z_ih> + <a_h column, Z_jh>)          values: Z
//   GATv2    U = [R_0 | R_1 | .. | L_0 | L_1 | ..]           a_h of d numbers
//            score of (i, j): <a_h, leaky(L_ih + R_jh)>                            values: R
//
//   Q_i = [sum_j alpha_ij0 values_j0 | ..], or their mean over the heads          alpha: softmax of the scores of row i
//
// Sources: Velickovic et al. (arXiv 1710.10903), equations 3 to 6; Brody, Alon & Yahav (arXiv 2105.14491), equation 7.

#include "pmm/edges/edge_block.hpp"

#include <cstdint>

namespace orthant::models {

enum class AttentionKind : std::uint8_t { gat, gatv2 };

/// Of a network.
struct AttentionShape {
  AttentionKind kind = AttentionKind::gat;
  std::int64_t num_heads = 8;        // of hidden layers, side by side
  std::int64_t num_output_heads = 1; // of a layer that makes the logits: their mean
};

/// Of a layer.
struct AttentionPlan {
  AttentionKind kind = AttentionKind::gat;
  std::int64_t num_heads = 1;
  std::int64_t head_width = 1;
  bool averages_heads = false;

  [[nodiscard]] bool is_dynamic() const { return kind == AttentionKind::gatv2; }
  [[nodiscard]] pmm::Heads heads() const { return {num_heads, head_width}; }
  /// Columns of U, and of W.
  [[nodiscard]] std::int64_t num_projected() const { return (is_dynamic() ? 2 : 1) * num_heads * head_width; }
  /// Numbers of a_h, a row of the parameter "attention".
  [[nodiscard]] std::int64_t num_vector() const { return (is_dynamic() ? 1 : 2) * head_width; }
};

/// Of a layer with that many columns, which heads cut evenly (Error).
[[nodiscard]] AttentionPlan attention_of(AttentionShape const& shape, std::int64_t num_columns,
                                         bool makes_logits);

} // namespace orthant::models
