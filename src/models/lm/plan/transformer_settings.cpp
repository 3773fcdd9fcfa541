// SPDX-License-Identifier: Apache-2.0
#include "models/lm/plan/transformer_settings.hpp"

#include "runtime/error.hpp"

#include <cmath>

namespace orthant::models {

void require_valid(ExpertSettings const& s, std::int64_t num_layers) {
  if (s.num_experts < 0) runtime::throw_user("--experts {}; 0 is none", s.num_experts);
  if (!s.is_on()) return;
  if (s.top_k < 1 || s.top_k > s.num_experts)
    runtime::throw_user("--top-k {}: a token takes at least 1 of the {} experts, and at most all of them",
                        s.top_k, s.num_experts);
  if (s.num_shared < 0) runtime::throw_user("--shared-experts {}; 0 is none", s.num_shared);
  if (s.every < 1 || s.every > num_layers)
    runtime::throw_user("--moe-every {}: no layer of {} would have experts; take 1 to {}", s.every,
                        num_layers, num_layers);
  if (s.capacity && !(*s.capacity > 0 && std::isfinite(*s.capacity)))
    runtime::throw_user("--capacity {}: an expert takes more than 0 mean loads; or none: no limit",
                        *s.capacity);
  if (s.planned_imbalance && !(*s.planned_imbalance >= 1 && std::isfinite(*s.planned_imbalance)))
    runtime::throw_user("--expert-imbalance {}: the most chosen expert has at least the mean load, 1",
                        *s.planned_imbalance);
  for (auto const coefficient : {s.balance_loss, s.z_loss, s.noise})
    if (!(coefficient >= 0 && std::isfinite(coefficient)))
      runtime::throw_user("{}: the losses and the noise of the router are at least 0", coefficient);
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
  if (s.hidden % s.num_heads != 0)
    runtime::throw_user("a width of {} is not divisible by {} heads", s.hidden, s.num_heads);
  if (s.num_heads % s.num_kv_heads != 0)
    runtime::throw_user("{} heads cannot share {} key-value heads evenly; choose a divisor of {}",
                        s.num_heads, s.num_kv_heads, s.num_heads);
  if (s.positions == Positions::rotary && s.head_dim() % 2 != 0)
    runtime::throw_user("rotary positions turn pairs of numbers, and heads of {} numbers have no whole pairs",
                        s.head_dim());
  if (!(s.dropout >= 0 && s.dropout < 1)) runtime::throw_user("a dropout of {} is not in [0, 1)", s.dropout);
  if (s.checkpoint_every < 0)
    runtime::throw_user("checkpoints every {} layers; 0 is none", s.checkpoint_every);
  if (s.keeps_collectives && s.checkpoint_every == 0)
    runtime::throw_user("--keep-collectives is for layers that are computed again; give "
                        "--activation-checkpointing full or N, too");
  require_valid(s.experts, s.num_layers);
}

} // namespace orthant::models
