// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/presets.hpp"

#include "runtime/error.hpp"

#include <algorithm>

namespace orthant::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Preset {
  std::string_view name;
  Json options;
};

/// Sizes: Radford et al. 2019 (gpt2), Touvron et al. 2023 (arXiv 2302.13971), Dubey et al. 2024 (arXiv 2407.21783).
/// Batches and rates of GPT-2: those with which nanoGPT reproduces it. nanogpt-cpu: its small model for characters.
std::vector<Preset> const& presets() {
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
                                         {"min-lr", 3e-6}}}};
  return all;
}

} // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (auto const& preset : presets())
    names.emplace_back(preset.name);
  return names;
}

Json preset_options(std::string_view name) {
  auto const found = std::ranges::find(presets(), name, &Preset::name);
  ORTHANT_REQUIRE(found != presets().end(), "no preset ", name);
  return found->options;
}

Json options_implied_by(std::string_view arch) {
  if (arch != "llama") return Json::object();
  return {{"bias", false}, {"tied-head", false}};
}

} // namespace orthant::cli
