#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Weights of a language model as Hugging Face's transformers keep them (hf_config.hpp): a folder with config.json and model.safetensors, or
// shards with model.safetensors.index.json. Most of their matrices are [out x in]. Our matrix of queries, keys and values has the columns
// of one key-value head after the other, and gates and values alternate (lm/plan/transformer_plan.hpp), so columns are permuted on the way.
// Numbers keep their bits; those of 16 bits are widened.

#include "models/lm/files/hf_config.hpp"
#include "models/parameters/weights_file.hpp"

#include <filesystem>

namespace orthant::models {

/// Writes the weights of the folder `model` as a weights file with the record `architecture`. One parameter and one of its tensors are in
/// memory at a time, on the root. `tokenizer`: the text of its tokenizer.json, which the file then holds, or empty; the same on all ranks.
/// Collective over `comm`. Throws UserError if tensors are missing, left over, or of another shape.
void import_hf_weights(runtime::Communicator const& comm, std::filesystem::path const& model,
                       HfConfig const& config, std::filesystem::path const& output,
                       Architecture const& architecture, std::string const& tokenizer);

/// Makes the folder of an export. Throws UserError if it exists and is not empty, or if it cannot be made.
void make_empty_folder(std::filesystem::path const& output);

/// Writes a folder with config.json, safetensors in shards of at most 5 GB, and the tokenizer.json that the file holds. Collective over
/// `comm`. Throws UserError if the architecture has no model_type, or if the folder exists and is not empty.
void export_hf_weights(runtime::Communicator const& comm, std::filesystem::path const& weights,
                       TransformerSettings const& settings, std::filesystem::path const& output);

} // namespace orthant::models
