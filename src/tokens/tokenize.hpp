#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// From a text to a token file. Every rank has a share of the text's bytes, and reads it twice: which tokens there
// are and how many, and then their numbers. What is held of the text is a block of 1 MiB.

#include "tokens/token_file.hpp"

namespace orthant::tokens {

struct TokenizeOptions {
  std::filesystem::path input;
  std::filesystem::path output;
  TokenizerKind tokenizer = TokenizerKind::character;
  double train_fraction = 0.9; // of the tokens, the first ones; the rest is for validation
};

/// Writes the token file; equal input gives equal bytes on any number of ranks. A byte order mark at the head of the
/// text is no token. Returns what the file says. Collective. Throws UserError, the same on all ranks, if the text
/// cannot be read, is empty, or is no UTF-8 (char).
TokenFacts tokenize(runtime::Communicator const& comm, TokenizeOptions const& options);

} // namespace orthant::tokens
