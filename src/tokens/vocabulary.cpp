// SPDX-License-Identifier: Apache-2.0
#include "tokens/vocabulary.hpp"

#include "runtime/error.hpp"

#include <array>

namespace orthant::tokens {
namespace {

/// The first code points that need 2, 3 and 4 bytes.
constexpr std::array<std::uint32_t, 3> first_of_length{0x80, 0x800, 0x10000};
constexpr unsigned bits_per_continuation = 6;
constexpr std::uint32_t continuation_mask = 0x3f;

bool is_surrogate(std::uint32_t code_point) {
  return code_point >= 0xd800 && code_point < 0xe000;
}

} // namespace

std::size_t length_of_character(char first) {
  auto const byte = static_cast<unsigned char>(first);
  if (byte < 0x80) return 1;
  if (byte >= 0xc2 && byte < 0xe0) return 2;
  if (byte >= 0xe0 && byte < 0xf0) return 3;
  if (byte >= 0xf0 && byte < 0xf5) return 4;
  return 0;
}

Character first_character(std::string_view text) {
  if (text.empty()) return {};
  auto const first = static_cast<unsigned char>(text.front());
  auto const length = length_of_character(text.front());
  if (length <= 1) return {first, length};
  if (text.size() < length) return {};
  auto code_point = std::uint32_t{first} & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (!continues_character(text[i])) return {};
    code_point = code_point << bits_per_continuation |
                 (static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])) & continuation_mask);
  }
  auto const is_overlong = code_point < first_of_length[length - 2];
  if (is_overlong || is_surrogate(code_point) || code_point >= num_code_points) return {};
  return {code_point, length};
}

std::string to_utf8(std::uint32_t code_point) {
  std::size_t length = 1;
  while (length < longest_character && code_point >= first_of_length[length - 1])
    ++length;
  if (length == 1) return {static_cast<char>(code_point)};
  std::string text(length, '\0');
  for (auto i = length - 1; i > 0; --i) {
    text[i] = static_cast<char>(0x80U | (code_point & continuation_mask));
    code_point >>= bits_per_continuation;
  }
  text[0] = static_cast<char>((0xf00U >> length & 0xffU) | code_point);
  return text;
}

TokenizerKind parse_tokenizer(std::string_view word) {
  if (word == "char") return TokenizerKind::character;
  if (word == "byte") return TokenizerKind::byte;
  if (word == "bpe") return TokenizerKind::bpe;
  runtime::throw_user("a tokenizer is char, byte or bpe, not '{}'", word);
}

std::string_view name_of(TokenizerKind kind) {
  if (kind == TokenizerKind::bpe) return "bpe";
  return kind == TokenizerKind::character ? "char" : "byte";
}

Vocabulary::Vocabulary(std::string bytes, std::vector<std::int64_t> ends)
    : bytes_(std::move(bytes)),
      ends_(std::move(ends)) {
  std::int64_t begin = 0;
  for (auto const end : ends_) {
    ORTHANT_REQUIRE(begin <= end, "a token that ends at byte ", end, " cannot begin at byte ", begin);
    begin = end;
  }
  ORTHANT_REQUIRE(begin == static_cast<std::int64_t>(bytes_.size()), "tokens of ", begin, " bytes in ",
                  bytes_.size());
}

Vocabulary Vocabulary::of_bytes() {
  constexpr int num_bytes = 256;
  std::string bytes;
  std::vector<std::int64_t> ends;
  for (int byte = 0; byte < num_bytes; ++byte) {
    bytes.push_back(static_cast<char>(byte));
    ends.push_back(byte + 1);
  }
  return {std::move(bytes), std::move(ends)};
}

Vocabulary Vocabulary::of_characters(std::span<std::uint32_t const> code_points) {
  std::string bytes;
  std::vector<std::int64_t> ends;
  for (auto const code_point : code_points) {
    bytes += to_utf8(code_point);
    ends.push_back(static_cast<std::int64_t>(bytes.size()));
  }
  return {std::move(bytes), std::move(ends)};
}

std::string_view Vocabulary::text_of(std::int64_t token) const {
  ORTHANT_REQUIRE(token >= 0 && token < size(), "token ", token, " of a vocabulary of ", size());
  auto const i = static_cast<std::size_t>(token);
  auto const begin = i == 0 ? std::int64_t{0} : ends_[i - 1];
  return std::string_view(bytes_).substr(static_cast<std::size_t>(begin),
                                         static_cast<std::size_t>(ends_[i] - begin));
}

} // namespace orthant::tokens
