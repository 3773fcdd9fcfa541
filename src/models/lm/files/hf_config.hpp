#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// config.json of a model as Hugging Face's transformers (versions 4 and 5) keep it: gpt2, llama, mistral, mixtral, qwen3, qwen3_moe,
// olmoe and deepseek (DeepSeek-MoE, whose program is its own). An unknown field could change the result, so it is refused by name.

#include "models/lm/plan/transformer_settings.hpp"

#include <filesystem>
#include <string>

namespace orthant::models {

enum class HfFamily : std::uint8_t { gpt2, llama, mixtral, qwen3, qwen3_moe, olmoe, deepseek };

struct HfConfig {
  HfFamily family = HfFamily::llama; // determines the names of tensors; mistral has llama's
  TransformerSettings settings;
  std::string note; // tells the user what differs from the config; empty if nothing
};

/// Reads `path`. Throws UserError, which names the field, if the model cannot be computed here.
[[nodiscard]] HfConfig read_hf_config(std::filesystem::path const& path);
/// The same of the text of a config.json. `name` is the file's, for messages.
[[nodiscard]] HfConfig hf_config_of(std::string const& text, std::string const& name);

/// The family whose config describes these settings. Throws UserError if there is none.
[[nodiscard]] HfFamily family_of(TransformerSettings const& settings);
/// Text of config.json. `type`: "float32" or "float64".
[[nodiscard]] std::string hf_config_text(TransformerSettings const& settings, std::string const& type);

} // namespace orthant::models
