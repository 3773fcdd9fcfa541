#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Converts a text to a token file. Every rank reads its share of the text's bytes twice: first to find and count the tokens, then to write
// their numbers. Memory for the text: one block of 1 MiB.

#include "tokens/token_file.hpp"

namespace orthant::tokens {

struct TokenizeOptions {
  std::filesystem::path input;
  std::filesystem::path output;
  TokenizerKind tokenizer = TokenizerKind::character;
  double train_fraction = 0.9; // fraction of the tokens, from the first on; the rest is for validation
};

/// Writes the token file. Equal input gives equal bytes on any number of ranks. A byte order mark at the beginning of the text is not a
/// token. Returns the facts of the file. Collective. Throws UserError on all ranks if the text cannot be read, is empty, or (char) is not
/// valid UTF-8.
TokenFacts tokenize(runtime::Communicator const& comm, TokenizeOptions const& options);

} // namespace orthant::tokens
