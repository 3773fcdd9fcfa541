// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/model_flops.hpp"

namespace orthant::cli {

ModelFlops model_flops(models::TransformerSettings const& settings, std::int64_t sequence) {
  auto const hidden = settings.hidden;
  auto const key_width = settings.num_kv_heads * settings.head_dim();
  auto const num_up = settings.activation == models::FeedForward::swiglu ? 2 : 1;
  auto const of_layer = hidden * (2 * hidden + 2 * key_width + (num_up + 1) * settings.feed_forward);
  auto const multiplied = settings.num_layers * of_layer + settings.vocabulary * hidden;
  return {6.0 * static_cast<double>(multiplied), 12.0 * static_cast<double>(settings.num_layers) *
                                                     static_cast<double>(hidden) *
                                                     static_cast<double>(sequence)};
}

} // namespace orthant::cli
