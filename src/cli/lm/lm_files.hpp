#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What files say of a language model: token files that are opened, and weights that record their model.

#include "cli/options/command.hpp"
#include "models/lm/plan/transformer_settings.hpp"
#include "models/parameters/weights_file.hpp"
#include "tokens/token_file.hpp"

namespace orthant::cli {

/// Opens and checks the file of --tokens. Collective. Throws UserError if it is not given, or damaged.
[[nodiscard]] tokens::TokenFile open_tokens(Context const& context, std::string const& path);

/// "tokens    t.h5: ..".
[[nodiscard]] std::string describe(tokens::TokenFile const& file);

/// What weights files and checkpoints record: of a model, and of how it is trained on `tokens` beside it, the length of
/// its sequences and the checksum of the vocabulary.
[[nodiscard]] models::Architecture record_of(models::TransformerSettings const& settings);
[[nodiscard]] models::Architecture record_of(models::TransformerSettings const& settings,
                                             std::int64_t sequence, tokens::TokenFile const& tokens);

struct RecordedModel {
  models::TransformerSettings settings;
  std::int64_t sequence = 0; // tokens, in training; the positions of the model if the file does not say
};
/// Collective. Throws UserError if the file records no language model.
[[nodiscard]] RecordedModel read_model(runtime::Communicator const& comm, std::string const& path);

/// Names of the weights whose shape depends on the vocabulary, for --init-skip: "wte.weight,lm_head.weight".
[[nodiscard]] std::string names_of_tables(runtime::Hdf5File const& file);

/// Throws UserError if the weights record another vocabulary than that of the tokens, whose file is at `tokens_path`.
/// Weights that record none fit. Collective.
void require_vocabulary(runtime::Communicator const& comm, std::string const& weights_path,
                        std::string const& tokens_path, tokens::TokenFile const& tokens);

} // namespace orthant::cli
