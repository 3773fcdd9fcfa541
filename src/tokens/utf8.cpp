// SPDX-License-Identifier: Apache-2.0
#include "tokens/utf8.hpp"

#include <array>

namespace orthant::tokens {
namespace {

/// The first code point that needs 2, 3 and 4 bytes.
constexpr std::array<std::uint32_t, 3> first_of_length{0x80, 0x800, 0x10000};
constexpr unsigned bits_per_continuation = 6;
constexpr std::uint32_t continuation_mask = 0x3f;

/// Bytes of a character that begins with this byte, or 0.
std::size_t length_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  if (first >= 0xf0 && first < 0xf5) return 4;
  return 0;
}

bool is_surrogate(std::uint32_t code_point) {
  return code_point >= 0xd800 && code_point < 0xe000;
}

} // namespace

Character first_character(std::string_view text) {
  if (text.empty()) return {};
  auto const first = static_cast<unsigned char>(text.front());
  auto const length = length_of(first);
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

} // namespace orthant::tokens
