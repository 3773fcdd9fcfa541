#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the user asks of a transformer that predicts the next token. Two shapes have names:
//
//   gpt2    learned positions, LayerNorm, GELU, biases, head tied to the embedding (Radford et al. 2019)
//   llama   rotary positions, RMSNorm, SwiGLU, no biases, head of its own (Touvron et al. 2023)

#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::models {

// What the user asks of the experts of a transformer: feed-forward parts of which each token takes a few.

/// Whose tokens fill the experts: those of all ranks, in their order, so that the grid does not change who is dropped; or those of one
/// rank along data and expert, which has experts' slots of its own, as in DeepSpeed.
enum class CapacityGroup : std::uint8_t { step, rank };

struct ExpertSettings {
  std::int64_t num_experts = 0; // 0: no layer has experts
  std::int64_t top_k = 1;       // experts of a token
  std::int64_t every = 1;       // each N-th layer has experts, the last of every N
  std::int64_t num_shared = 0;  // experts beside them that every token passes through, without a weight
  std::optional<double> capacity =
      std::nullopt; // of an expert, in mean loads of a training pass; none: nothing is dropped
  CapacityGroup capacity_group = CapacityGroup::step;
  double balance_loss = 0; // coefficients of the losses of the router (pmm/experts/routing.hpp)
  double z_loss = 0;
  double noise = 0; // deviation of what is added to the logits for the choice, in training
  /// Of predictions that do not know the loads: the most chosen expert over the mean. None: 1 for seconds, the middle of what is possible
  /// for memory (plan_for_memory()).
  std::optional<double> planned_imbalance = std::nullopt;
  /// How often each expert was chosen in an earlier run, by layers with experts: they are placed by it. Empty: in order.
  std::vector<std::vector<std::int64_t>> past_loads = {};

  [[nodiscard]] bool is_on() const { return num_experts > 0; }
  [[nodiscard]] bool has_layer(std::int64_t layer) const { return is_on() && (layer + 1) % every == 0; }
  [[nodiscard]] bool has_shared() const { return is_on() && num_shared > 0; }
  [[nodiscard]] bool has_all_layers() const { return is_on() && every == 1; }
  friend bool operator==(ExpertSettings const&, ExpertSettings const&) = default;
};

/// Throws UserError if the settings contradict one another, such as more experts of a token than there are.
void require_valid(ExpertSettings const& settings, std::int64_t num_layers);

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
