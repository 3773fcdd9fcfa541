#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// tokenizer.json, the file of Hugging Face's tokenizers: reads byte-level byte-pair encodings, and refuses other kinds by name.

#include "tokens/bpe/tokenizer.hpp"

#include <string>
#include <string_view>

namespace orthant::tokens {

/// Reads the text of a tokenizer.json. Throws UserError with `name` if it is damaged, or is a tokenizer of another kind.
[[nodiscard]] TokenizerDefinition read_tokenizer_json(std::string_view text, std::string const& name);

/// A tokenizer.json that read_tokenizer_json() and Hugging Face's tokenizers read as this definition.
[[nodiscard]] std::string to_tokenizer_json(TokenizerDefinition const& definition);

// The characters that stand for bytes in the texts of a tokenizer.json: printable Latin-1 for themselves, U+0100 and up for the other 68.

/// The characters of `bytes`, in UTF-8.
[[nodiscard]] std::string to_byte_characters(std::string_view bytes);
/// The bytes of the characters; `text` itself if it contains other characters.
[[nodiscard]] std::string from_byte_characters(std::string const& text);

} // namespace orthant::tokens
