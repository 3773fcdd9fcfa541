#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Files of language models: opens token files, and reads and writes the record of a model in weights files.

#include "cli/options/command.hpp"
#include "models/lm/plan/transformer_settings.hpp"
#include "models/parameters/weights_file.hpp"
#include "tokens/documents/text_tokenizer.hpp"
#include "tokens/token_file.hpp"

namespace orthant::cli {

/// Warns, on rank 0, if masks of documents change nothing because the file has one document, and if they or dropout keep attention from the
/// vendor's library, which --gemm-math bf16 uses on devices.
void warn_of_attention(Context& context, models::TransformerSettings const& model,
                       tokens::TokenFile const& file, std::string const& gemm_math);

/// Opens and checks the file of --tokens. Collective. Throws UserError if no file is given or it is damaged.
[[nodiscard]] tokens::TokenFile open_tokens(Context const& context, std::string const& path);

/// Line about the file: "tokens    t.h5: ..".
[[nodiscard]] std::string describe(tokens::TokenFile const& file);

/// Record of a model in weights files and checkpoints; the second form adds the training: length of its sequences, and checksum of the
/// vocabulary of `tokens`.
[[nodiscard]] models::Architecture record_of(models::TransformerSettings const& settings);
[[nodiscard]] models::Architecture record_of(models::TransformerSettings const& settings,
                                             std::int64_t sequence, tokens::TokenFile const& tokens);

struct RecordedModel {
  models::TransformerSettings settings;
  std::int64_t sequence = 0; // tokens in training; by default the positions of the model
};
/// Reads the model that a weights file records. Collective. Throws UserError if it records no language model.
[[nodiscard]] RecordedModel read_model(runtime::Communicator const& comm, std::string const& path);

/// The tokenizer of `path`, or, if that is empty, the one that the weights hold. Collective. Throws UserError if there is none, if it has
/// tokens beyond the `vocabulary` of the model, or if the weights record another vocabulary.
[[nodiscard]] tokens::TextTokenizer open_tokenizer(runtime::Communicator const& comm, std::string const& path,
                                                   std::string const& weights_path, std::int64_t vocabulary);

/// Names of the weights whose shape depends on the vocabulary, for --init-skip: "wte.weight,lm_head.weight".
[[nodiscard]] std::string names_of_tables(runtime::Hdf5File const& file);

/// Throws UserError if the weights record another vocabulary than `tokens`, which was opened at `tokens_path`. Weights without a recorded
/// vocabulary are accepted. Collective.
void require_vocabulary(runtime::Communicator const& comm, std::string const& weights_path,
                        std::string const& tokens_path, tokens::TokenFile const& tokens);

} // namespace orthant::cli
