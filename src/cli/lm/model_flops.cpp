// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/model_flops.hpp"

namespace orthant::cli {

ModelFlops model_flops(models::TransformerSettings const& settings, std::int64_t sequence) {
  auto const hidden = settings.hidden;
  auto const key_width = settings.num_kv_heads * settings.head_dim();
  auto const num_up = settings.activation == models::FeedForward::swiglu ? 2 : 1;
  auto const of_attention = hidden * (2 * hidden + 2 * key_width);
  auto const of_feed_forward = hidden * (num_up + 1) * settings.feed_forward;
  auto const& experts = settings.experts;
  auto const of_experts =
      (experts.top_k + experts.num_shared) * of_feed_forward + hidden * experts.num_experts;
  auto multiplied = settings.num_layers * of_attention + settings.vocabulary * hidden;
  for (std::int64_t l = 0; l < settings.num_layers; ++l)
    multiplied += experts.has_layer(l) ? of_experts : of_feed_forward;
  return {6.0 * static_cast<double>(multiplied), 12.0 * static_cast<double>(settings.num_layers) *
                                                     static_cast<double>(hidden) *
                                                     static_cast<double>(sequence)};
}

} // namespace orthant::cli
