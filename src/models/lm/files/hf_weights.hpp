#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Weights of a language model as Hugging Face's transformers keep them (hf_config.hpp): a folder with config.json and model.safetensors, or
// shards with model.safetensors.index.json. Most of their matrices are [out x in]. Our matrix of queries, keys and values has the columns
// of one key-value head after the other, and gates and values alternate (lm/plan/transformer_plan.hpp), so columns are permuted. Numbers
// are copied bit for bit, except that 16-bit numbers become fp32.

#include "models/lm/files/gguf_model.hpp"
#include "models/parameters/weights_file.hpp"

#include <filesystem>

namespace orthant::models {

/// Writes the weights of the folder `model` as a weights file with the record `architecture`. Each rank reads and writes a share of the
/// pieces of the parameters, one after the other (Piece), so it never holds a whole tensor of a large model. The file does not depend on
/// the number of ranks. `tokenizer`: the text of the model's tokenizer.json, which is stored in the file, or empty; the same on all ranks.
/// Collective over `comm`. Throws UserError if tensors are missing, unknown, or have another shape.
void import_hf_weights(runtime::Communicator const& comm, std::filesystem::path const& model,
                       HfConfig const& config, std::filesystem::path const& output,
                       Architecture const& architecture, std::string const& tokenizer);

/// The same of the GGUF file `path`, with its tokenizer if it has one that can be read.
void import_gguf_weights(runtime::Communicator const& comm, std::filesystem::path const& path,
                         GgufModel const& model, std::filesystem::path const& output,
                         Architecture const& architecture);

/// Makes the folder of an export. Throws UserError if it exists and is not empty, or if it cannot be made.
void make_empty_folder(std::filesystem::path const& output);

/// Writes a folder with config.json, safetensors in shards of at most 5 GB, and the tokenizer.json that the file holds. The root reads and
/// writes pieces of tensors, one after the other. Collective over `comm`. Throws UserError if the architecture has no model_type, or if the folder exists and is not empty.
void export_hf_weights(runtime::Communicator const& comm, std::filesystem::path const& weights,
                       TransformerSettings const& settings, std::filesystem::path const& output);

} // namespace orthant::models
