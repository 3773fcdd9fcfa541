#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// UTF-8 (RFC 3629): one character, which is a code point of Unicode, in 1 to 4 bytes.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace orthant::tokens {

inline constexpr std::uint32_t num_code_points = 0x110000;
inline constexpr std::size_t longest_character = 4; // bytes

struct Character {
  std::uint32_t code_point = 0;
  std::size_t num_bytes = 0; // 0: no character begins so
};

/// The character that `text` begins with. Overlong forms, surrogates and numbers beyond Unicode are none.
[[nodiscard]] Character first_character(std::string_view text);

/// True for the second to fourth byte of a character.
[[nodiscard]] constexpr bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U;
}

/// The bytes of a code point.
[[nodiscard]] std::string to_utf8(std::uint32_t code_point);

} // namespace orthant::tokens
