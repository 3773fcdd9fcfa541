#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The classes of characters by which tokenizers split a text: \p{L}, \p{N} and \s of Unicode 16.

#include <cstdint>
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

} // namespace orthant::tokens
