#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Learns a byte-pair encoding: the tokens are at first the 256 bytes; then, repeatedly, the most frequent pair of neighboring tokens
// becomes a new token. Of equally frequent pairs, the one with the smallest numbers is taken. Equal to BpeTrainer of Hugging Face's
// tokenizers.

#include "tokens/bpe/tokenizer.hpp"

#include <cstdint>
#include <string>
#include <unordered_map>

namespace orthant::tokens {

/// How often each piece occurs in the texts.
using PieceCounts = std::unordered_map<std::string, std::int64_t>;

/// A tokenizer that splits texts as GPT-2 does. Its tokens are the 256 bytes in the order of GPT-2, `num_tokens` that are learned, or fewer
/// if the pieces have no more, and <|endoftext|>.
[[nodiscard]] TokenizerDefinition train_merges(PieceCounts const& pieces, std::int64_t num_tokens);

} // namespace orthant::tokens
