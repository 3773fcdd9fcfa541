// SPDX-License-Identifier: Apache-2.0
#include "tokens/bpe/unicode_classes.hpp"

#include "tokens/vocabulary.hpp"

#include <array>
#include <span>

namespace orthant::tokens {
namespace {

struct CodeRange {
  std::uint32_t first;
  std::uint32_t last;
};

#include "tokens/bpe/unicode_classes.inc"

} // namespace

UnicodeClasses::UnicodeClasses() : classes_(num_code_points, CharacterClass::other) {
  auto const mark = [&](std::span<CodeRange const> ranges, CharacterClass kind) {
    for (auto const& [first, last] : ranges)
      for (auto code = first; code <= last; ++code)
        classes_[code] = kind;
  };
  mark(letters, CharacterClass::letter);
  mark(numbers, CharacterClass::number);
  mark(spaces, CharacterClass::space);
}

UnicodeClasses const& UnicodeClasses::get() {
  static UnicodeClasses const classes;
  return classes;
}

} // namespace orthant::tokens
