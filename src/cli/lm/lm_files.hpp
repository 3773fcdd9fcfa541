#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What files say of a language model: token files that are opened, and weights that record their model.

#include "cli/options/command.hpp"
#include "models/core/weights_file.hpp"
#include "models/lm/transformer_settings.hpp"
#include "tokens/token_file.hpp"

namespace orthant::cli {

/// Opens and checks the file of --tokens. Collective. Throws UserError if it is not given, or damaged.
[[nodiscard]] tokens::TokenFile open_tokens(Context const& context, std::string const& path);

/// "tokens    t.h5: ..".
[[nodiscard]] std::string describe(tokens::TokenFile const& file);

/// What weights files and checkpoints record of a model, and the model that a file records. Throws UserError if it
/// records none.
[[nodiscard]] models::Architecture record_of(models::TransformerSettings const& settings);
[[nodiscard]] models::TransformerSettings read_model(runtime::Communicator const& comm,
                                                     std::string const& path);

} // namespace orthant::cli
