#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Adapters of a weights file (lm/adapters/adapter_plan.hpp) as Hugging Face's PEFT keeps them: a folder with adapter_config.json and
// adapter_model.safetensors, which has lora_A [rank x in] and lora_B [out x rank] per adapted matrix of the base model. Queries, keys and
// values of GPT-2 are one matrix there, whose adapter has the ranks of all its targets.

#include "models/lm/plan/transformer_settings.hpp"
#include "runtime/comm/communicator.hpp"

#include <filesystem>

namespace orthant::models {

/// Writes the folder. Collective over `comm`. Throws UserError if the weights have no adapters, if the architecture has no model_type, or
/// if the folder exists and is not empty.
void export_peft_adapters(runtime::Communicator const& comm, std::filesystem::path const& weights,
                          TransformerSettings const& model, std::filesystem::path const& output);

} // namespace orthant::models
