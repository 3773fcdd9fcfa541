// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/train_lm_options.hpp"

#include "cli/options/gemm_options.hpp"
#include "pmm/grid/process_grid.hpp"
#include "tokens/token_file.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

using Json = nlohmann::ordered_json;

/// Sources of the sizes: Radford et al. 2019 (gpt2), Touvron et al. 2023 (arXiv 2302.13971), Dubey et al. 2024 (arXiv 2407.21783), Jiang
/// et al. 2024 (arXiv 2401.04088; batches and rates of Mixtral are not published, these are ours), Dai et al. 2024 (DeepSeekMoE 16B,
/// arXiv 2401.06066, section 5.1.2). Differences to DeepSeekMoE: its learning rate falls in two steps, and its
/// initial weights have deviation 0.006. Batches and rates of GPT-2 are those with which
/// nanoGPT reproduces it. nanogpt-cpu is nanoGPT's small model for characters.
std::span<Preset const> language_model_presets() {
  static std::vector<Preset> const all{{"none", Json::object()},
                                       {"nanogpt-cpu",
                                        {{"arch", "gpt2"},
                                         {"layers", 4},
                                         {"hidden", 128},
                                         {"heads", 4},
                                         {"bias", false},
                                         {"tied-head", true},
                                         {"dropout", 0.0},
                                         {"sequence", 64},
                                         {"global-batch", 12},
                                         {"steps", 2000},
                                         {"lr", 1e-3},
                                         {"lr-schedule", "cosine"},
                                         {"warmup-steps", 100},
                                         {"min-lr", 1e-4},
                                         {"betas", {0.9, 0.99}},
                                         {"weight-decay", 0.1},
                                         {"clip-norm", 1.0}}},
                                       {"gpt2",
                                        {{"arch", "gpt2"},
                                         {"layers", 12},
                                         {"hidden", 768},
                                         {"heads", 12},
                                         {"sequence", 1024},
                                         {"global-batch", 480},
                                         {"steps", 600000},
                                         {"lr", 6e-4},
                                         {"lr-schedule", "cosine"},
                                         {"warmup-steps", 2000},
                                         {"min-lr", 6e-5}}},
                                       {"gpt2-medium",
                                        {{"arch", "gpt2"},
                                         {"layers", 24},
                                         {"hidden", 1024},
                                         {"heads", 16},
                                         {"sequence", 1024},
                                         {"global-batch", 480},
                                         {"steps", 600000},
                                         {"lr", 3e-4},
                                         {"lr-schedule", "cosine"},
                                         {"warmup-steps", 2000},
                                         {"min-lr", 3e-5}}},
                                       {"llama-cpu",
                                        {{"arch", "llama"},
                                         {"layers", 4},
                                         {"hidden", 128},
                                         {"heads", 4},
                                         {"kv-heads", 2},
                                         {"sequence", 64},
                                         {"global-batch", 12},
                                         {"steps", 2000},
                                         {"lr", 1e-3},
                                         {"lr-schedule", "cosine"},
                                         {"warmup-steps", 100},
                                         {"min-lr", 1e-4},
                                         {"betas", {0.9, 0.99}}}},
                                       {"llama-7b",
                                        {{"arch", "llama"},
                                         {"layers", 32},
                                         {"hidden", 4096},
                                         {"heads", 32},
                                         {"feed-forward", 11008},
                                         {"norm-epsilon", 1e-6},
                                         {"sequence", 2048},
                                         {"global-batch", 2048},
                                         {"steps", 250000},
                                         {"lr", 3e-4},
                                         {"lr-schedule", "cosine"},
                                         {"warmup-steps", 2000},
                                         {"min-lr", 3e-5}}},
                                       {"llama3-8b",
                                        {{"arch", "llama"},
                                         {"layers", 32},
                                         {"hidden", 4096},
                                         {"heads", 32},
                                         {"kv-heads", 8},
                                         {"feed-forward", 14336},
                                         {"rotary-base", 500000.0},
                                         {"sequence", 8192},
                                         {"global-batch", 512},
                                         {"steps", 1200000},
                                         {"lr", 3e-4},
                                         {"lr-schedule", "cosine"},
                                         {"warmup-steps", 8000},
                                         {"min-lr", 3e-6}}},
                                       {"mixtral-cpu",
                                        {{"arch", "llama"},
                                         {"layers", 4},
                                         {"hidden", 128},
                                         {"heads", 4},
                                         {"kv-heads", 2},
                                         {"experts", 8},
                                         {"top-k", 2},
                                         {"sequence", 64},
                                         {"global-batch", 12},
                                         {"steps", 2000},
                                         {"lr", 1e-3},
                                         {"lr-schedule", "cosine"},
                                         {"warmup-steps", 100},
                                         {"min-lr", 1e-4},
                                         {"betas", {0.9, 0.99}}}},
                                       {"mixtral-8x7b",
                                        {{"arch", "llama"},
                                         {"layers", 32},
                                         {"hidden", 4096},
                                         {"heads", 32},
                                         {"kv-heads", 8},
                                         {"feed-forward", 14336},
                                         {"rotary-base", 1e6},
                                         {"experts", 8},
                                         {"top-k", 2},
                                         {"sequence", 32768},
                                         {"global-batch", 128},
                                         {"steps", 500000},
                                         {"lr", 3e-4},
                                         {"lr-schedule", "cosine"},
                                         {"warmup-steps", 2000},
                                         {"min-lr", 3e-5}}},
                                       {"deepseek-cpu",
                                        {{"arch", "llama"},
                                         {"layers", 4},
                                         {"hidden", 128},
                                         {"heads", 4},
                                         {"feed-forward", 88},
                                         {"experts", 16},
                                         {"top-k", 3},
                                         {"shared-experts", 1},
                                         {"balance-loss", 0.001},
                                         {"sequence", 64},
                                         {"global-batch", 12},
                                         {"steps", 2000},
                                         {"lr", 1e-3},
                                         {"lr-schedule", "cosine"},
                                         {"warmup-steps", 100},
                                         {"min-lr", 1e-4},
                                         {"betas", {0.9, 0.99}}}},
                                       {"deepseek-moe-16b",
                                        {{"arch", "llama"},
                                         {"layers", 28},
                                         {"hidden", 2048},
                                         {"heads", 16},
                                         {"feed-forward", 10944},
                                         {"norm-epsilon", 1e-6},
                                         {"experts", 64},
                                         {"expert-width", 1408},
                                         {"dense-layers", 1},
                                         {"top-k", 6},
                                         {"top-k-weights", "softmax"},
                                         {"shared-experts", 2},
                                         {"balance-loss", 0.001},
                                         {"sequence", 4096},
                                         {"global-batch", 4608},
                                         {"steps", 106449},
                                         {"lr", 4.2e-4},
                                         {"lr-schedule", "cosine"},
                                         {"warmup-steps", 2000},
                                         {"min-lr", 4.2e-5}}}};
  return all;
}

namespace {

/// Options that --arch implies: {"bias": false, ..}.
Json options_implied_by(std::string_view arch) {
  if (arch != "llama") return Json::object();
  return {{"bias", false}, {"tied-head", false}};
}

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Values to try: for a number of the preset this number, then its neighbors, nearest first; for a number of the user this number only.
std::vector<std::int64_t> candidates(std::int64_t number, bool is_of_preset, std::int64_t most) {
  std::vector<std::int64_t> list{number};
  for (std::int64_t distance = 1; is_of_preset && distance < std::max(number, most); ++distance)
    for (auto const candidate : {number - distance, number + distance})
      if (candidate >= 1 && candidate <= std::max(number, most)) list.push_back(candidate);
  return list;
}

/// Adjusts heads and width: heads must divide the width (with an even quotient if positions are rotated), and key-value heads must divide
/// the heads. Independent of the grid, so the network does not depend on where it is trained.
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
  if (preset.gives("dense-layers"))
    preset.change("dense-layers", o.dense_layers,
                  std::min(o.dense_layers, std::max<std::int64_t>(0, o.layers - o.moe_every)));
}

void fit_sequences(Context const& context, PresetFit& preset, TrainLmOptions& o, pmm::GridShape const& grid) {
  if (preset.gives("sequence")) {
    auto most = o.positions > 0 ? o.positions : o.sequence;
    if (!o.tokens.empty()) {
      constexpr std::int64_t least = 2; // a token and its successor
      auto const num_tokens =
          tokens::TokenFile::open(context.world(), o.tokens).num_tokens(tokens::Part::train);
      most = std::min(most, std::max(least, num_tokens) - 1);
    }
    preset.change("sequence", o.sequence, std::min(o.sequence, most));
  }
  if (!preset.gives("global-batch")) return;
  auto const num_parts = std::max(std::int64_t{grid.data} * grid.z / o.context_axis, o.expert_axis);
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
  if (preset.gives("warmup-steps")) { // keeps its share of the steps
    auto const share = static_cast<double>(o.warmup_steps) / given.at("steps").get<double>();
    preset.change("warmup-steps", o.warmup_steps,
                  std::int64_t{std::llround(share * static_cast<double>(o.steps))});
  } else if (preset.gives("steps") && o.warmup_steps < most_epochs) {
    preset.change("steps", o.steps, o.steps + o.warmup_steps);
  }
}

/// Sets the option `name`.
void set(TrainLmOptions& o, std::string const& name, Json const& value) {
  using Options = TrainLmOptions;
  static std::map<std::string_view, std::int64_t Options::*> const integers{
      {"layers", &Options::layers},
      {"hidden", &Options::hidden},
      {"heads", &Options::heads},
      {"kv-heads", &Options::kv_heads},
      {"feed-forward", &Options::feed_forward},
      {"sequence", &Options::sequence},
      {"global-batch", &Options::global_batch},
      {"steps", &Options::steps},
      {"warmup-steps", &Options::warmup_steps},
      {"experts", &Options::experts},
      {"top-k", &Options::top_k},
      {"dense-layers", &Options::dense_layers},
      {"expert-width", &Options::expert_width},
      {"shared-experts", &Options::shared_experts}};
  static std::map<std::string_view, double Options::*> const numbers{{"dropout", &Options::dropout},
                                                                     {"lr", &Options::lr},
                                                                     {"min-lr", &Options::min_lr},
                                                                     {"weight-decay", &Options::weight_decay},
                                                                     {"balance-loss", &Options::balance_loss},
                                                                     {"norm-epsilon", &Options::norm_epsilon},
                                                                     {"rotary-base", &Options::rotary_base}};
  static std::map<std::string_view, std::string Options::*> const words{
      {"arch", &Options::arch},
      {"top-k-weights", &Options::top_k_weights},
      {"lr-schedule", &Options::lr_schedule},
      {"compute-dtype", &Options::compute_dtype},
      {"gemm-math", &Options::gemm_math},
      {"comm-dtype", &Options::comm_dtype}};
  if (auto const found = integers.find(name); found != integers.end())
    o.*found->second = value;
  else if (auto const number = numbers.find(name); number != numbers.end())
    o.*number->second = value;
  else if (auto const word = words.find(name); word != words.end())
    o.*word->second = value;
  else if (name == "bias")
    o.bias = value;
  else if (name == "tied-head")
    o.tied_head = value;
  else if (name == "betas")
    o.betas = value.get<std::vector<double>>();
  else if (name == "clip-norm")
    o.clip_norm = value.get<double>();
  else
    ORTHANT_REQUIRE(false, "a preset sets ", name, ", which nobody reads");
}

/// Changes numbers of the preset that contradict the user's options, and logs the changes in one line. Options of the user that
/// contradict each other stay unchanged; later checks refuse them. Reads the number of tokens. Collective.
void fit_preset(Context& context, TrainLmOptions& o) {
  PresetFit preset(context, o.preset);
  fit_heads(preset, o);
  fit_experts(preset, o);
  fit_sequences(context, preset, o, pmm::read_grid(o.grid).value_or(pmm::GridShape{}));
  fit_rate(preset, o);
  preset.tell();
}

} // namespace

void apply_preset(Context& context, TrainLmOptions& options) {
  auto const& preset = options_of(language_model_presets(), options.preset);
  auto const set_option = [&](std::string const& name, Json const& value) { set(options, name, value); };
  set_unless_given(context, preset, set_option);
  fit_preset(context, options);
  set_unless_given(context, options_implied_by(options.arch), set_option);
  set_unless_given(context, options_of_precision(options.precision, Activations::of_fp32), set_option);
  // The record does not know the defaults of lists and of optional values.
  auto& configuration = context.run_record.at("configuration");
  auto const record = [&](char const* name, Json const& value) {
    if (configuration.contains(name)) return;
    configuration[name] = value;
    context.run_record.at("sources")[name] = "default";
  };
  record("betas", options.betas);
  if (options.clip_norm) record("clip-norm", *options.clip_norm);
}

} // namespace orthant::cli
