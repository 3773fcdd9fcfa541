#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Settings of a transformer that predicts the next token, and of its experts. Two architectures have names:
//
//   gpt2    learned positions, LayerNorm, GELU, biases, head tied to the embedding (Radford et al. 2019)
//   llama   rotary positions, RMSNorm, SwiGLU, no biases, head of its own (Touvron et al. 2023)

#include "pmm/attention/attention.hpp"
#include "pmm/token_rows/feed_forward.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::models {

// Settings of a mixture of experts: feed-forward parts of which each token uses only a few.

/// Tokens that compete for the slots of an expert of limited capacity. `step`: the tokens of all ranks in their global order, so
/// that the dropped choices do not depend on the grid. `rank`: the tokens of one rank along data and expert, which has slots of
/// its own, as in DeepSpeed.
enum class CapacityGroup : std::uint8_t { step, rank };

struct ExpertSettings {
  std::int64_t num_experts = 0; // experts per layer; 0: no layer has experts
  std::int64_t top_k = 1;       // experts per token
  std::int64_t every = 1;       // every N-th layer has experts: the last of N layers
  std::int64_t num_dense = 0;   // the first layers have no experts
  std::int64_t num_shared = 0;  // shared experts in addition: all tokens use them, with weight 1
  std::int64_t width = 0;       // feed-forward width of an expert; 0: that of layers without experts
  /// Capacity of an expert in training, as a multiple of the mean load; nullopt: no limit, no choice is dropped.
  std::optional<double> capacity = std::nullopt;
  CapacityGroup capacity_group = CapacityGroup::step;
  bool normalizes_weights = true; // top_k > 1: a token's weights are divided by their sum, as in Mixtral
  double weight_scale = 1;        // all weights are multiplied by it
  bool has_biases =
      false; // sigmoid gates, and biases for the choice that balance the loads (pmm/experts/routing.hpp)
  double balance_loss = 0;  // coefficient of the balance loss of the router (pmm/experts/routing.hpp)
  double z_loss = 0;        // coefficient of its z-loss
  double sequence_loss = 0; // coefficient of the balance loss of each sequence, with has_biases
  double noise = 0;         // standard deviation of the noise on the logits for the choice, in training only
  /// Load of the most chosen expert over the mean load, which predictions assume if they do not know the loads. nullopt:
  /// predictions of time assume 1, predictions of memory the middle of the possible range (plan_for_memory()).
  std::optional<double> planned_imbalance = std::nullopt;
  /// [layers with experts][experts] How often each expert was chosen in an earlier run; experts are placed by these loads. If
  /// empty, expert e is at place e.
  std::vector<std::vector<std::int64_t>> past_loads = {};

  [[nodiscard]] bool is_on() const { return num_experts > 0; }
  [[nodiscard]] bool has_layer(std::int64_t layer) const {
    return is_on() && layer >= num_dense && (layer + 1) % every == 0;
  }
  /// Number of layers with experts before `layer`.
  [[nodiscard]] std::int64_t num_layers_before(std::int64_t layer) const {
    return layer <= num_dense ? 0 : layer / every - num_dense / every;
  }
  [[nodiscard]] bool has_shared() const { return is_on() && num_shared > 0; }
  [[nodiscard]] bool has_all_layers() const { return is_on() && every == 1 && num_dense == 0; }
  friend bool operator==(ExpertSettings const&, ExpertSettings const&) = default;
};

/// Throws UserError if the settings contradict one another, for example if top_k exceeds num_experts.
void require_valid(ExpertSettings const& settings, std::int64_t num_layers);

/// Settings of low-rank adapters (lm/adapters/adapters.hpp). With adapters, all other parameters are frozen.
struct AdapterSettings {
  std::int64_t rank = 0;            // 0: no adapters
  double alpha = 16;                // the product of the factors is multiplied by alpha / rank
  std::vector<std::string> targets; // of q, k, v, o, gate, up and down, as in Llama

  [[nodiscard]] bool is_on() const { return rank > 0; }
  [[nodiscard]] double scale() const { return alpha / static_cast<double>(rank); }
  friend bool operator==(AdapterSettings const&, AdapterSettings const&) = default;
};

/// Results of a block that its backward pass computes again instead of keeping them (selective recomputation). Shares of what a block of
/// GPT-2 keeps, in widths of the stream per token: norms 2 of 16, activations 4, attention 1. Only attention with a context axis
/// communicates again.
struct Recomputation {
  bool norms = false;       // outputs of both norms, from their inputs and statistics
  bool activations = false; // inputs of the product down; of shared experts, but not of routed ones
  bool attention = false; // outputs of attention, from queries, keys and values: the work of its forward pass
  friend bool operator==(Recomputation const&, Recomputation const&) = default;
};

struct TransformerSettings;
/// Whether a layer has activations that Recomputation::activations would save: a dense layer, or shared experts.
[[nodiscard]] bool has_dense_activations(TransformerSettings const& settings);
/// Of words "norms", "activations" and "attention". Throws UserError for other words.
[[nodiscard]] Recomputation parse_recomputation(std::vector<std::string> const& words);
/// The words with commas between them; empty if nothing is computed again.
[[nodiscard]] std::string text_of(Recomputation const& recomputed);

/// What ranks along context exchange, so that queries meet all keys: keys and values of all tokens are gathered, head by head
/// (lm/transformer/shared_key_values.hpp), or each rank gets all tokens of a part of the heads (pmm::HeadExchange). `automatic`:
/// cost_of_language_model() chooses the faster one; a plan takes key_values.
enum class ContextExchange : std::uint8_t { automatic, key_values, heads };
/// The words are "auto", "key-values" and "heads". Throws UserError for other words.
[[nodiscard]] std::string_view name_of(ContextExchange exchange);
[[nodiscard]] ContextExchange parse_context_exchange(std::string_view word);

enum class Positions : std::uint8_t { learned, rotary };
enum class NormKind : std::uint8_t { layer, rms };
/// RMSNorm of queries and keys before rotary positions: of each head, with one scale per number of a head, as in Qwen3; or of all heads
/// together, as in OLMoE.
enum class QueryKeyNorm : std::uint8_t { none, head, all };
using pmm::FeedForward;

/// The words are "gelu", "gelu_tanh" and "swiglu". Throws UserError for other words.
[[nodiscard]] std::string_view name_of(FeedForward kind);
[[nodiscard]] FeedForward parse_feed_forward(std::string_view word);
/// The text is "none", or "factor,low,high,positions" of Llama 3. Throws UserError for other texts.
[[nodiscard]] std::string text_of(std::optional<pmm::RotaryScaling> const& scaling);
[[nodiscard]] std::optional<pmm::RotaryScaling> parse_rotary_scaling(std::string const& text);

struct TransformerSettings {
  std::int64_t num_layers = 0;
  std::int64_t hidden = 0; // width of the residual stream
  std::int64_t num_heads = 0;
  std::int64_t head_width = 0;   // numbers per head; 0: hidden / num_heads
  std::int64_t num_kv_heads = 0; // must divide num_heads; fewer: grouped-query, 1: multi-query attention
  std::int64_t feed_forward = 0; // width between the two products of the feed-forward part
  std::int64_t vocabulary = 0;
  std::int64_t max_sequence = 0; // length of the longest sequence; number of learned positions
  Positions positions = Positions::learned;
  NormKind norm = NormKind::layer;
  FeedForward activation = FeedForward::gelu;
  bool has_bias = true;
  bool tied_head = true;
  double dropout = 0;
  double norm_epsilon = 1e-5;
  double rotary_base = 10000;
  std::optional<pmm::RotaryScaling> rotary_scaling = std::nullopt;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  ExpertSettings experts;
  AdapterSettings adapters;
  bool masks_documents =
      false; // attention stays within documents, whose positions count from 0; not a part of the architecture
  std::vector<std::string> frozen = {}; // patterns of names of parameters that training does not change
  pmm::GemmMath math =
      pmm::GemmMath::fp32; // of products, for predictions: set_gemm_math() sets the program's
  runtime::Wire wire = runtime::Wire::native; // of activations and weights in messages of products
  ContextExchange context_exchange = ContextExchange::automatic; // has no effect without a context axis
  Recomputation recomputed = {};
  bool splits_backward = false;      // in a pipeline: gradients of weights follow later than those of streams
  std::int64_t checkpoint_every = 0; // layers per kept input (activation checkpointing); 0 keeps all
  bool keeps_collectives = false;    // also keeps results of collectives, so recomputing does not communicate
  /// Gradients of the blocks' matrices share memory, and are taken as they are completed, as pruned training does.
  bool shares_gradients = false;

  [[nodiscard]] std::int64_t head_dim() const { return head_width > 0 ? head_width : hidden / num_heads; }
  /// Feed-forward width of an expert.
  [[nodiscard]] std::int64_t expert_width() const { return experts.width > 0 ? experts.width : feed_forward; }
  friend bool operator==(TransformerSettings const&, TransformerSettings const&) = default;
};

/// Settings of GPT-2's architecture with feed_forward = 4 hidden and max_sequence = sequence.
[[nodiscard]] TransformerSettings gpt2_settings(std::int64_t num_layers, std::int64_t hidden,
                                                std::int64_t num_heads, std::int64_t vocabulary,
                                                std::int64_t sequence);
/// Settings of Llama's architecture with feed_forward = 8/3 hidden, rounded up to a multiple of 32, and max_sequence = sequence.
[[nodiscard]] TransformerSettings llama_settings(std::int64_t num_layers, std::int64_t hidden,
                                                 std::int64_t num_heads, std::int64_t num_kv_heads,
                                                 std::int64_t vocabulary, std::int64_t sequence);

/// Throws UserError if the settings contradict one another, for example if the number of heads does not divide the width.
void require_valid(TransformerSettings const& settings);

} // namespace orthant::models
