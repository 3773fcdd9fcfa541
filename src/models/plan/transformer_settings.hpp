#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the user asks of a transformer that predicts the next token. Two shapes have names:
//
//   gpt2    learned positions, LayerNorm, GELU, biases, head tied to the embedding (Radford et al. 2019)
//   llama   rotary positions, RMSNorm, SwiGLU, no biases, head of its own (Touvron et al. 2023)

#include "models/plan/expert_settings.hpp"

#include <cstdint>

namespace orthant::models {

enum class Positions : std::uint8_t { learned, rotary };
enum class NormKind : std::uint8_t { layer, rms };
enum class FeedForward : std::uint8_t { gelu, swiglu };

struct TransformerSettings {
  std::int64_t num_layers = 0;
  std::int64_t hidden = 0; // width of the residual stream
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0; // divides num_heads: fewer is grouped-query, 1 multi-query attention
  std::int64_t feed_forward = 0; // width between the two products of a block's second half
  std::int64_t vocabulary = 0;
  std::int64_t max_sequence = 0; // learned positions; and the longest sequence
  Positions positions = Positions::learned;
  NormKind norm = NormKind::layer;
  FeedForward activation = FeedForward::gelu;
  bool has_bias = true;
  bool tied_head = true;
  double dropout = 0;
  double norm_epsilon = 1e-5;
  double rotary_base = 10000;
  ExpertSettings experts;
  std::int64_t checkpoint_every = 0; // layers per kept input; 0 keeps all activations
  bool keeps_collectives =
      false; // their results, too, so that layers are computed again without communication

  [[nodiscard]] std::int64_t head_dim() const { return hidden / num_heads; }
  friend bool operator==(TransformerSettings const&, TransformerSettings const&) = default;
};

/// feed_forward = 4 hidden, max_sequence = sequence.
[[nodiscard]] TransformerSettings gpt2_settings(std::int64_t num_layers, std::int64_t hidden,
                                                std::int64_t num_heads, std::int64_t vocabulary,
                                                std::int64_t sequence);
/// feed_forward = 8/3 hidden, rounded up to a multiple of 32.
[[nodiscard]] TransformerSettings llama_settings(std::int64_t num_layers, std::int64_t hidden,
                                                 std::int64_t num_heads, std::int64_t num_kv_heads,
                                                 std::int64_t vocabulary, std::int64_t sequence);

/// Throws UserError if the settings contradict one another, such as heads that do not divide the width.
void require_valid(TransformerSettings const& settings);

} // namespace orthant::models
