// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/fitted_preset.hpp"

#include "cli/lm/presets.hpp"
#include "pmm/grid/process_grid.hpp"
#include "tokens/token_file.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace orthant::cli {
namespace {

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// The preset's number, and then its neighbors, nearest first; a number of the user alone.
std::vector<std::int64_t> candidates(std::int64_t number, bool is_of_preset, std::int64_t most) {
  std::vector<std::int64_t> list{number};
  for (std::int64_t distance = 1; is_of_preset && distance < std::max(number, most); ++distance)
    for (auto const candidate : {number - distance, number + distance})
      if (candidate >= 1 && candidate <= std::max(number, most)) list.push_back(candidate);
  return list;
}

/// Heads divide the width, in pairs of numbers if positions are rotated, and key-value heads divide the heads. The grid has no
/// say: the network does not depend on where it is trained.
void fit_heads(PresetFit& preset, TrainLmOptions& o) {
  auto const unit = o.arch == "llama" ? 2 : 1;
  constexpr std::int64_t most_tried = 1024;
  auto const most = std::min(most_tried, 2 * std::max(o.heads, o.kv_heads));
  auto const gives_hidden = preset.gives("hidden");
  for (auto const heads : candidates(o.heads, preset.gives("heads"), most))
    for (auto const kv_heads : candidates(o.kv_heads, preset.gives("kv-heads"), most)) {
      if (kv_heads > 0 && heads % kv_heads != 0) continue;
      if (!gives_hidden && o.hidden % (heads * unit) != 0) continue;
      if (gives_hidden) preset.change("hidden", o.hidden, rounded_up(o.hidden, heads * unit));
      preset.change("heads", o.heads, heads);
      preset.change("kv-heads", o.kv_heads, kv_heads);
      return;
    }
}

void fit_experts(PresetFit& preset, TrainLmOptions& o) {
  if (o.experts == 0) return;
  if (preset.gives("experts"))
    preset.change("experts", o.experts,
                  std::max(o.experts, preset.gives("top-k") ? std::int64_t{0} : o.top_k));
  if (preset.gives("top-k")) preset.change("top-k", o.top_k, std::min(o.top_k, o.experts));
  if (preset.gives("layers")) preset.change("layers", o.layers, std::max(o.layers, o.moe_every));
}

void fit_sequences(Context const& context, PresetFit& preset, TrainLmOptions& o, pmm::GridShape const& grid) {
  if (preset.gives("sequence")) {
    auto most = o.positions > 0 ? o.positions : o.sequence;
    if (!o.tokens.empty()) {
      constexpr std::int64_t least = 2; // a token and the one that follows it
      auto const num_tokens =
          tokens::TokenFile::open(context.world(), o.tokens).num_tokens(tokens::Part::train);
      most = std::min(most, std::max(least, num_tokens) - 1);
    }
    preset.change("sequence", o.sequence, std::min(o.sequence, most));
  }
  if (!preset.gives("global-batch")) return;
  auto const num_parts = std::max(std::int64_t{grid.data} * grid.z, o.expert_axis);
  preset.change("global-batch", o.global_batch,
                rounded_up(std::max(o.global_batch, num_parts * o.accumulate), o.accumulate));
}

void fit_rate(PresetFit& preset, TrainLmOptions& o) {
  if (o.lr_schedule == "constant" && preset.gives("min-lr")) preset.change("min-lr", o.min_lr, 0.0);
  auto const& given = options_of(language_model_presets(), o.preset);
  if (o.min_lr > o.lr && preset.gives("min-lr"))
    preset.change("min-lr", o.min_lr, o.lr * (o.min_lr / given.at("lr").get<double>()));
  if (o.min_lr > o.lr && preset.gives("lr")) preset.change("lr", o.lr, o.min_lr);
  if (o.warmup_steps == 0 || o.warmup_steps < o.steps) return;
  if (preset.gives("warmup-steps")) { // the same share of the steps
    auto const share = static_cast<double>(o.warmup_steps) / given.at("steps").get<double>();
    preset.change("warmup-steps", o.warmup_steps,
                  std::int64_t{std::llround(share * static_cast<double>(o.steps))});
  } else if (preset.gives("steps") && o.warmup_steps < most_epochs) {
    preset.change("steps", o.steps, o.steps + o.warmup_steps);
  }
}

} // namespace

void fit_preset(Context& context, TrainLmOptions& o) {
  PresetFit preset(context, o.preset);
  fit_heads(preset, o);
  fit_experts(preset, o);
  fit_sequences(context, preset, o, pmm::read_grid(o.grid).value_or(pmm::GridShape{}));
  fit_rate(preset, o);
  preset.tell();
}

} // namespace orthant::cli
