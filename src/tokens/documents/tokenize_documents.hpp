#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Converts documents to a token file by a tokenizer's file, and learns a byte-pair encoding from documents. Every thread of every rank reads a part of the documents once. The tokens of a
// rank's parts are in its memory until they are written: 4 bytes per token.

#include "tokens/bpe/tokenizer_files.hpp"
#include "tokens/documents/documents.hpp"
#include "tokens/token_file.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace orthant::tokens {

struct DocumentOptions {
  std::string input; // see input_files()
  std::filesystem::path output;
  double train_fraction = 0.9; // share of the tokens that are for training
  std::string field = "text";
  std::string end_token;        // see find_end_token()
  std::int64_t num_threads = 1; // per rank
};

/// The facts of a token file of this tokenizer, for TokenOutput.
[[nodiscard]] TokenFacts bpe_facts(std::string const& input, TokenizerFile const& tokenizer_file,
                                   std::optional<std::uint32_t> end);

/// Writes the token file. Between two documents is the end token; there is none before the first and after the last one. Equal input gives
/// equal bytes on any number of ranks and threads. Returns the facts of the file. Collective. Throws UserError on all ranks if a file cannot
/// be read, there are no tokens, or there are several documents and no end token.
TokenFacts tokenize_documents(runtime::Communicator const& comm, DocumentOptions const& options,
                              TokenizerFile const& tokenizer_file);

/// Every thread of every rank counts the pieces of its part; rank 0 learns from the sums. See train_merges(). The same tokenizer on any number of ranks and threads. Collective. Throws UserError on all ranks if a file cannot be
/// read.
[[nodiscard]] TokenizerFile train_tokenizer(runtime::Communicator const& comm, std::string const& input,
                                            std::string const& field, std::int64_t num_threads,
                                            std::int64_t num_tokens);

} // namespace orthant::tokens
