#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Learns a byte-pair encoding from documents. Every thread of every rank counts the pieces of its part; rank 0 learns from the sums.

#include "tokens/bpe/tokenizer_files.hpp"
#include "tokens/documents/documents.hpp"

#include <string>

namespace orthant::tokens {

/// See train_merges(). The same tokenizer on any number of ranks and threads. Collective. Throws UserError on all ranks if a file cannot be
/// read.
[[nodiscard]] TokenizerFile train_tokenizer(runtime::Communicator const& comm, std::string const& input,
                                            std::string const& field, std::int64_t num_threads,
                                            std::int64_t num_tokens);

} // namespace orthant::tokens
