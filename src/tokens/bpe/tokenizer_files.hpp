#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The files in which tokenizers come:
//
//   tokenizer.json              Hugging Face's tokenizers
//   vocab.json + merges.txt     GPT-2's, also as encoder.json + vocab.bpe: the numbers of the tokens, and one merge per line
//   FILE.h5                     a token file, which holds the tokenizer.json of its tokens
//   NAME.tiktoken               OpenAI's, Llama 3's, Qwen's: a token in base64 and its rank per line
//
// Added tokens in a text are found for tokenizer.json only, as the reference programs do.

#include "runtime/comm/communicator.hpp"
#include "tokens/bpe/tokenizer.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace orthant::tokens {

struct TokenizerFile {
  std::string name; // of the file or the folder, without the folders above it
  TokenizerDefinition definition;
  std::string json; // a tokenizer.json for this tokenizer: the file itself if it is one
};

/// Reads a tokenizer from a file or from a folder that contains one. `pattern`: gpt2, llama3, qwen2 or cl100k for a .tiktoken file, or empty
/// for the pattern of the known file with that number of tokens. Rank 0 reads. Throws UserError on all ranks if there is no such tokenizer,
/// or if it is damaged or of another kind. Collective.
[[nodiscard]] TokenizerFile read_tokenizer(runtime::Communicator const& comm,
                                           std::filesystem::path const& path, std::string const& pattern);

/// The definition of a .tiktoken file's text. As in tiktoken, a token is the merge of any two tokens that it consists of. Throws UserError
/// with `name` if the text is damaged, or if two tokens have the same rank or the same bytes.
[[nodiscard]] TokenizerDefinition read_ranks(std::string_view text, std::string const& pattern,
                                             std::string const& name);

/// The definition of the texts of vocab.json and merges.txt.
[[nodiscard]] TokenizerDefinition
read_vocabulary_and_merges(std::string_view vocabulary, std::string_view merges, std::string const& name);

// tokenizer.json, the file of Hugging Face's tokenizers: reads byte-level byte-pair encodings, and refuses other kinds by name.

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
