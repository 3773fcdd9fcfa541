#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The texts of tokens. Token i of a vocabulary is a short sequence of bytes:
//
//   char    the characters (Unicode code points) of a text, in ascending order
//   byte    the 256 bytes, for any text
//   bpe     byte sequences that a tokenizer's files list (bpe/tokenizer.hpp); numbers without a token have an empty text

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::tokens {

// UTF-8 (RFC 3629): one character, which is a code point of Unicode, in 1 to 4 bytes.

inline constexpr std::uint32_t num_code_points = 0x110000;
inline constexpr std::size_t longest_character = 4; // bytes

struct Character {
  std::uint32_t code_point = 0;
  std::size_t num_bytes = 0; // 0: not the beginning of a character
};

/// Number of bytes of a character that begins with this byte; 0: none does.
[[nodiscard]] std::size_t length_of_character(char first);

/// The first character of `text`. Overlong forms, surrogates and numbers beyond Unicode are invalid.
[[nodiscard]] Character first_character(std::string_view text);

/// True for the second to fourth byte of a character.
[[nodiscard]] constexpr bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U;
}

/// The bytes of a code point.
[[nodiscard]] std::string to_utf8(std::uint32_t code_point);

enum class TokenizerKind : std::uint8_t { character, byte, bpe };
/// "char", "byte" or "bpe". Throws UserError for another word.
[[nodiscard]] TokenizerKind parse_tokenizer(std::string_view word);
[[nodiscard]] std::string_view name_of(TokenizerKind kind);

class Vocabulary {
 public:
  Vocabulary() = default;
  /// Token i is bytes[ends[i-1], ends[i]). Throws Error if the ends descend or do not reach the number of bytes.
  Vocabulary(std::string bytes, std::vector<std::int64_t> ends);
  [[nodiscard]] static Vocabulary of_bytes();
  /// One token per code point, in the order given.
  [[nodiscard]] static Vocabulary of_characters(std::span<std::uint32_t const> code_points);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }
  [[nodiscard]] std::string_view text_of(std::int64_t token) const;
  [[nodiscard]] std::string const& bytes() const { return bytes_; }
  [[nodiscard]] std::vector<std::int64_t> const& ends() const { return ends_; }

 private:
  std::string bytes_;
  std::vector<std::int64_t> ends_;
};

} // namespace orthant::tokens
