#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// config.json of a model as Hugging Face's transformers (versions 4 and 5) keep it: gpt2, llama, mistral, mixtral, qwen3, qwen3_moe. A field
// that could change the result and is not known is refused by name, never passed over.

#include "models/lm/plan/transformer_settings.hpp"

#include <filesystem>
#include <string>

namespace orthant::models {

enum class HfFamily : std::uint8_t { gpt2, llama, mixtral, qwen3, qwen3_moe };

struct HfConfig {
  HfFamily family = HfFamily::llama; // names of the tensors; mistral has those of llama
  TransformerSettings settings;
  std::string note; // what was changed, for the user; empty if nothing was
};

/// Reads `path`. Throws UserError, which names the field, if the model cannot be computed here.
[[nodiscard]] HfConfig read_hf_config(std::filesystem::path const& path);

/// The family whose config describes these settings. Throws UserError if there is none.
[[nodiscard]] HfFamily family_of(TransformerSettings const& settings);
/// Text of config.json. `type`: "float32" or "float64".
[[nodiscard]] std::string hf_config_text(TransformerSettings const& settings, std::string const& type);

} // namespace orthant::models
