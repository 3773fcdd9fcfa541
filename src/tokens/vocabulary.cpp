// SPDX-License-Identifier: Apache-2.0
#include "tokens/vocabulary.hpp"

#include "runtime/error.hpp"
#include "tokens/utf8.hpp"

namespace orthant::tokens {

TokenizerKind parse_tokenizer(std::string_view word) {
  if (word == "char") return TokenizerKind::character;
  if (word == "byte") return TokenizerKind::byte;
  runtime::throw_user("--tokenizer is char or byte, not '{}'", word);
}

std::string_view name_of(TokenizerKind kind) {
  return kind == TokenizerKind::character ? "char" : "byte";
}

Vocabulary::Vocabulary(std::string bytes, std::vector<std::int64_t> ends)
    : bytes_(std::move(bytes)),
      ends_(std::move(ends)) {
  std::int64_t begin = 0;
  for (auto const end : ends_) {
    ORTHANT_REQUIRE(begin < end, "a token that ends at byte ", end, " cannot begin at byte ", begin);
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
