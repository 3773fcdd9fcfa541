#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What tokenizers take from Unicode 16: the classes of characters by which they split a text, \p{L}, \p{N} and \s, and normalization
// form C (Unicode Standard Annex 15), by which "e" and U+0301 become "é".

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::tokens {

enum class CharacterClass : std::uint8_t { other, letter, number, space };

class UnicodeClasses {
 public:
  /// The table, which the first call makes.
  [[nodiscard]] static UnicodeClasses const& get();

  /// The class of a code point below 0x110000.
  [[nodiscard]] CharacterClass of(std::uint32_t code_point) const { return classes_[code_point]; }

 private:
  UnicodeClasses();

  std::vector<CharacterClass> classes_; // by code point
};

/// The text in normalization form C. Bytes that are not UTF-8 are not changed, and characters on both sides of them are not composed.
[[nodiscard]] std::string to_nfc(std::string_view text);

} // namespace orthant::tokens
