// SPDX-License-Identifier: Apache-2.0
#include "models/lm/plan/transformer_settings.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <set>
#include <utility>

namespace orthant::models {

void require_valid(ExpertSettings const& s, std::int64_t num_layers) {
  if (s.num_experts < 0) runtime::throw_user("--experts {}; 0 is none", s.num_experts);
  if (!s.is_on()) return;
  if (s.top_k < 1 || s.top_k > s.num_experts)
    runtime::throw_user("--top-k {}: a token takes at least 1 of the {} experts, and at most all of them",
                        s.top_k, s.num_experts);
  if (s.width < 0) runtime::throw_user("--expert-width {}; 0 is --feed-forward", s.width);
  if (!(s.weight_scale > 0 && std::isfinite(s.weight_scale)))
    runtime::throw_user("--top-k-scale {}; give a number above 0", s.weight_scale);
  if (s.num_shared < 0) runtime::throw_user("--shared-experts {}; 0 is none", s.num_shared);
  if (s.every < 1 || s.every > num_layers)
    runtime::throw_user("--moe-every {}: no layer of {} would have experts; take 1 to {}", s.every,
                        num_layers, num_layers);
  if (s.num_dense < 0 || s.num_dense >= num_layers)
    runtime::throw_user("--dense-layers {}: no layer of {} would have experts; take 0 to {}", s.num_dense,
                        num_layers, num_layers - 1);
  if (s.num_layers_before(num_layers) == 0)
    runtime::throw_user(
        "--dense-layers {} with --moe-every {}: no layer of {} would have experts; make one of "
        "them smaller",
        s.num_dense, s.every, num_layers);
  if (s.capacity && !(*s.capacity > 0 && std::isfinite(*s.capacity)))
    runtime::throw_user("--capacity {}: an expert takes more than 0 mean loads; or none: no limit",
                        *s.capacity);
  if (s.planned_imbalance && !(*s.planned_imbalance >= 1 && std::isfinite(*s.planned_imbalance)))
    runtime::throw_user("--expert-imbalance {}: the most chosen expert has at least the mean load, 1",
                        *s.planned_imbalance);
  if (s.has_biases && (s.balance_loss > 0 || s.z_loss > 0))
    runtime::throw_user("--balance-loss and --z-loss are for --balance loss: leave them out");
  if (!s.has_biases && s.sequence_loss > 0)
    runtime::throw_user("--sequence-balance-loss is for --balance bias; give that, too");
  for (auto const coefficient : {s.balance_loss, s.z_loss, s.sequence_loss, s.noise})
    if (!(coefficient >= 0 && std::isfinite(coefficient)))
      runtime::throw_user("{}: the losses and the noise of the router are at least 0", coefficient);
}

std::string_view name_of(FeedForward kind) {
  return kind == FeedForward::swiglu ? "swiglu" : kind == FeedForward::gelu_tanh ? "gelu_tanh" : "gelu";
}

FeedForward parse_feed_forward(std::string_view word) {
  for (auto const kind : {FeedForward::gelu, FeedForward::gelu_tanh, FeedForward::swiglu})
    if (name_of(kind) == word) return kind;
  runtime::throw_user("an activation is gelu, gelu_tanh or swiglu, not '{}'", word);
}

std::string_view name_of(ContextExchange exchange) {
  return exchange == ContextExchange::heads        ? "heads"
         : exchange == ContextExchange::key_values ? "key-values"
                                                   : "auto";
}

ContextExchange parse_context_exchange(std::string_view word) {
  for (auto const exchange :
       {ContextExchange::automatic, ContextExchange::key_values, ContextExchange::heads})
    if (name_of(exchange) == word) return exchange;
  runtime::throw_user("ranks along context exchange key-values or heads, or auto, not '{}'", word);
}

namespace {

constexpr std::array<std::pair<std::string_view, bool Recomputation::*>, 3> parts_of_recomputation{
    {{"norms", &Recomputation::norms},
     {"activations", &Recomputation::activations},
     {"attention", &Recomputation::attention}}};

} // namespace

bool has_dense_activations(TransformerSettings const& settings) {
  return !settings.experts.has_all_layers() || settings.experts.has_shared();
}

Recomputation parse_recomputation(std::vector<std::string> const& words) {
  Recomputation recomputed;
  for (auto const& word : words) {
    auto const* const known =
        std::ranges::find(parts_of_recomputation, word, [](auto const& part) { return part.first; });
    if (known == parts_of_recomputation.end())
      runtime::throw_user("norms, activations and attention can be computed again, not '{}'", word);
    recomputed.*(known->second) = true;
  }
  return recomputed;
}

std::string text_of(Recomputation const& recomputed) {
  std::string text;
  for (auto const& [word, is_on] : parts_of_recomputation)
    if (recomputed.*is_on) text.append(text.empty() ? "" : ",").append(word);
  return text;
}

std::string text_of(std::optional<pmm::RotaryScaling> const& scaling) {
  if (!scaling) return "none";
  return fmt::format("{},{},{},{}", scaling->factor, scaling->low, scaling->high, scaling->num_positions);
}

std::optional<pmm::RotaryScaling> parse_rotary_scaling(std::string const& text) {
  if (text == "none") return std::nullopt;
  pmm::RotaryScaling scaling;
  int end = 0;
  auto const found = std::sscanf(text.c_str(), "%lf,%lf,%lf,%" SCNd64 "%n", &scaling.factor, &scaling.low,
                                 &scaling.high, &scaling.num_positions, &end);
  if (found != 4 || end != static_cast<int>(text.size()))
    runtime::throw_user(
        "rotary scaling is none or four numbers FACTOR,LOW,HIGH,POSITIONS such as 8,1,4,8192, not '{}'",
        text);
  return scaling;
}

TransformerSettings gpt2_settings(std::int64_t num_layers, std::int64_t hidden, std::int64_t num_heads,
                                  std::int64_t vocabulary, std::int64_t sequence) {
  TransformerSettings settings;
  settings.num_layers = num_layers;
  settings.hidden = hidden;
  settings.num_heads = settings.num_kv_heads = num_heads;
  settings.feed_forward = 4 * hidden;
  settings.vocabulary = vocabulary;
  settings.max_sequence = sequence;
  return settings;
}

TransformerSettings llama_settings(std::int64_t num_layers, std::int64_t hidden, std::int64_t num_heads,
                                   std::int64_t num_kv_heads, std::int64_t vocabulary,
                                   std::int64_t sequence) {
  auto settings = gpt2_settings(num_layers, hidden, num_heads, vocabulary, sequence);
  settings.num_kv_heads = num_kv_heads;
  settings.feed_forward = (8 * hidden / 3 + 31) / 32 * 32;
  settings.positions = Positions::rotary;
  settings.norm = NormKind::rms;
  settings.activation = FeedForward::swiglu;
  settings.has_bias = false;
  settings.tied_head = false;
  return settings;
}

namespace {

void require_valid_scaling(pmm::RotaryScaling const& scaling) {
  auto const& [factor, low, high, num_positions] = scaling;
  if (factor >= 1 && low > 0 && high > low && num_positions >= 1 && std::isfinite(factor) &&
      std::isfinite(high))
    return;
  runtime::throw_user("rotary scaling by {} between {} and {} turns in {} positions; give a factor of at "
                      "least 1, two increasing "
                      "numbers of turns above 0, and at least one position",
                      factor, low, high, num_positions);
}

void require_valid_adapters(TransformerSettings const& s) {
  auto const& adapters = s.adapters;
  if (!adapters.is_on()) return;
  if (!(adapters.alpha > 0 && std::isfinite(adapters.alpha)))
    runtime::throw_user("--lora-alpha {}; give a number above 0", adapters.alpha);
  if (adapters.targets.empty()) runtime::throw_user("--lora-targets names no target; give some, such as q,v");
  static std::set<std::string> const of_attention{"q", "k", "v", "o"}, of_feed_forward{"gate", "up", "down"};
  std::set<std::string> seen;
  for (auto const& target : adapters.targets) {
    if (!of_attention.contains(target) && !of_feed_forward.contains(target))
      runtime::throw_user("--lora-targets: '{}' is none of q, k, v, o, gate, up, down", target);
    if (!seen.insert(target).second) runtime::throw_user("--lora-targets has {} twice", target);
    if (target == "gate" && s.activation != FeedForward::swiglu)
      runtime::throw_user("--lora-targets gate is for --activation swiglu: leave it out");
    if (of_feed_forward.contains(target) && s.experts.has_all_layers())
      runtime::throw_user("--lora-targets {} is of feed-forward networks, and all layers have experts: leave "
                          "it out",
                          target);
  }
}

} // namespace

void require_valid(TransformerSettings const& s) {
  auto const require_positive = [](std::int64_t value, char const* what) {
    if (value < 1) runtime::throw_user("a transformer needs {} of at least 1, not {}", what, value);
  };
  require_positive(s.num_layers, "a number of layers");
  require_positive(s.hidden, "a width (hidden)");
  require_positive(s.num_heads, "a number of heads");
  require_positive(s.num_kv_heads, "a number of key-value heads");
  require_positive(s.feed_forward, "a width between the products of the feed-forward part");
  require_positive(s.vocabulary, "a vocabulary");
  require_positive(s.max_sequence, "a longest sequence");
  if (s.head_width < 0)
    runtime::throw_user("heads of {} numbers; 0 is the width by the number of heads", s.head_width);
  if (s.head_width == 0 && s.hidden % s.num_heads != 0)
    runtime::throw_user("a width of {} is not divisible by {} heads", s.hidden, s.num_heads);
  if (s.num_heads % s.num_kv_heads != 0)
    runtime::throw_user("{} heads cannot share {} key-value heads evenly; choose a divisor of {}",
                        s.num_heads, s.num_kv_heads, s.num_heads);
  if (s.positions == Positions::rotary && s.head_dim() % 2 != 0)
    runtime::throw_user("rotary positions turn pairs of numbers, and heads of {} numbers have no whole pairs",
                        s.head_dim());
  if (!(s.norm_epsilon >= 0 && s.norm_epsilon <= 1))
    runtime::throw_user("norms that add {} to the variance; give a number from 0 to 1", s.norm_epsilon);
  if (!(s.rotary_base > 1 && std::isfinite(s.rotary_base)))
    runtime::throw_user("rotary positions with base {}; give a number above 1", s.rotary_base);
  if (s.rotary_scaling) require_valid_scaling(*s.rotary_scaling);
  if (!(s.dropout >= 0 && s.dropout < 1)) runtime::throw_user("a dropout of {} is not in [0, 1)", s.dropout);
  if (s.checkpoint_every < 0)
    runtime::throw_user("checkpoints every {} layers; 0 is none", s.checkpoint_every);
  if (s.keeps_collectives && s.checkpoint_every == 0)
    runtime::throw_user("--keep-collectives is for layers that are computed again; give "
                        "--activation-checkpointing full or N, too");
  require_valid(s.experts, s.num_layers);
  if (s.recomputed.activations && !has_dense_activations(s))
    runtime::throw_user("--recompute activations is for dense layers and shared experts, and this model has "
                        "neither: leave it out");
  require_valid_adapters(s);
}

} // namespace orthant::models
