#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Converts texts in memory to tokens and back, with a tokenizer of any kind: char, byte or bpe (vocabulary.hpp).

#include "runtime/comm/communicator.hpp"
#include "tokens/bpe/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::tokens {

class TextTokenizer {
 public:
  /// The tokenizer of `path`: a tokenizer's file or folder (bpe/tokenizer_files.hpp), a token file (.h5), or the word "byte". Collective.
  /// Throws UserError on all ranks if there is none.
  [[nodiscard]] static TextTokenizer read(runtime::Communicator const& comm,
                                          std::filesystem::path const& path);
  /// The tokenizer of a tokenizer.json's text. Throws UserError with `name`.
  [[nodiscard]] static TextTokenizer of_json(std::string const& json, std::string const& name);

  [[nodiscard]] std::string const& name() const { return name_; }
  [[nodiscard]] Vocabulary const& vocabulary() const { return bpe_ ? bpe_->vocabulary() : vocabulary_; }
  /// Throws UserError if the text has a character that is no token of a tokenizer of the kind char.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  /// The bytes of a token; empty for a number beyond the vocabulary, which padded tables of a model have.
  [[nodiscard]] std::string_view text_of(std::int32_t token) const;
  /// The token that ends a document, if there is one.
  [[nodiscard]] std::optional<std::int32_t> end_token() const { return end_token_; }

 private:
  explicit TextTokenizer(std::string name) : name_(std::move(name)) {}

  std::string name_;
  Vocabulary vocabulary_;                                // of char and byte
  std::map<std::string, std::int32_t, std::less<>> ids_; // of char and byte
  std::shared_ptr<Tokenizer const> bpe_;
  std::optional<std::int32_t> end_token_;
};

/// `text` with U+FFFD in place of each byte that is not part of a character of UTF-8.
[[nodiscard]] std::string to_valid_utf8(std::string_view text);

/// Number of bytes at the end of `text` that may be the beginning of a character: 0 to 3.
[[nodiscard]] std::size_t unfinished_character(std::string_view text);

} // namespace orthant::tokens
