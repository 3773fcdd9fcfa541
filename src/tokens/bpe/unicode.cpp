// SPDX-License-Identifier: Apache-2.0
#include "tokens/bpe/unicode.hpp"

#include "tokens/vocabulary.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <unordered_map>

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

namespace {

struct Decomposition {
  std::uint32_t composed;
  std::uint32_t first;
  std::uint32_t second; // 0: the decomposition has one part
};

struct CombiningRange {
  std::uint32_t first;
  std::uint32_t last;
  std::uint32_t number;
};

#include "tokens/bpe/nfc.inc"

// Hangul syllables are composed of a leading consonant, a vowel and perhaps a trailing consonant.
namespace hangul {
constexpr std::uint32_t syllables = 0xac00;
constexpr std::uint32_t leading = 0x1100;
constexpr std::uint32_t vowels = 0x1161;
constexpr std::uint32_t trailing = 0x11a7; // stands for none
constexpr std::uint32_t num_leading = 19;
constexpr std::uint32_t num_vowels = 21;
constexpr std::uint32_t num_trailing = 28;
constexpr std::uint32_t num_syllables = num_leading * num_vowels * num_trailing;
} // namespace hangul

/// The tables, by code point.
class Normalization {
 public:
  static Normalization const& get() {
    static Normalization const made;
    return made;
  }

  void decompose(std::uint32_t code, std::vector<std::uint32_t>& codes) const {
    if (auto const index = code - hangul::syllables;
        code >= hangul::syllables && index < hangul::num_syllables) {
      codes.push_back(hangul::leading + index / (hangul::num_vowels * hangul::num_trailing));
      codes.push_back(hangul::vowels + index / hangul::num_trailing % hangul::num_vowels);
      if (auto const last = index % hangul::num_trailing; last != 0) codes.push_back(hangul::trailing + last);
      return;
    }
    auto const found = parts_.find(code);
    if (found == parts_.end()) {
      codes.push_back(code);
      return;
    }
    decompose(found->second.first, codes);
    if (found->second.second != 0) decompose(found->second.second, codes);
  }
  /// The code point that two code points are composed to; 0 if there is none.
  [[nodiscard]] std::uint32_t compose(std::uint32_t first, std::uint32_t second) const {
    if (first - hangul::leading < hangul::num_leading && second - hangul::vowels < hangul::num_vowels)
      return hangul::syllables + ((first - hangul::leading) * hangul::num_vowels + second - hangul::vowels) *
                                     hangul::num_trailing;
    if (first - hangul::syllables < hangul::num_syllables &&
        (first - hangul::syllables) % hangul::num_trailing == 0 &&
        second - hangul::trailing - 1 < hangul::num_trailing - 1)
      return first + second - hangul::trailing;
    auto const found = composed_.find({first, second});
    return found == composed_.end() ? 0 : found->second;
  }
  [[nodiscard]] std::uint32_t combining_class(std::uint32_t code) const {
    auto const found = classes_.find(code);
    return found == classes_.end() ? 0 : found->second;
  }

 private:
  Normalization() {
    for (auto const& [code, first, second] : composing) {
      parts_[code] = {first, second};
      composed_[{first, second}] = code;
    }
    for (auto const& [code, first, second] : not_composing)
      parts_[code] = {first, second};
    for (auto const& [first, last, number] : combining)
      for (auto code = first; code <= last; ++code)
        classes_[code] = number;
  }

  std::unordered_map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> parts_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> composed_;
  std::unordered_map<std::uint32_t, std::uint32_t> classes_;
};

/// A byte that is not UTF-8 becomes num_code_points plus its value.
std::vector<std::uint32_t> decomposed(std::string_view text) {
  std::vector<std::uint32_t> codes;
  while (!text.empty()) {
    auto const character = first_character(text);
    if (character.num_bytes == 0)
      codes.push_back(num_code_points + static_cast<unsigned char>(text.front()));
    else
      Normalization::get().decompose(character.code_point, codes);
    text.remove_prefix(std::max<std::size_t>(character.num_bytes, 1));
  }
  return codes;
}

/// Sorts each run of combining marks by their classes.
void reorder(std::vector<std::uint32_t>& codes) {
  auto const class_of = [](std::uint32_t code) { return Normalization::get().combining_class(code); };
  for (auto begin = codes.begin(); begin != codes.end();) {
    if (class_of(*begin) == 0) {
      ++begin;
      continue;
    }
    auto const end =
        std::find_if(begin, codes.end(), [&](std::uint32_t code) { return class_of(code) == 0; });
    std::ranges::stable_sort(std::ranges::subrange(begin, end), {}, class_of);
    begin = end;
  }
}

void compose(std::vector<std::uint32_t>& codes) {
  auto const& tables = Normalization::get();
  constexpr auto none = static_cast<std::size_t>(-1);
  std::size_t starter = none;
  std::uint32_t last_class = 0; // class of the last mark kept after the starter
  std::size_t size = 0;
  for (auto const code : codes) {
    auto const number = tables.combining_class(code);
    auto const is_blocked = starter != none && size - starter > 1 && last_class >= number;
    if (starter != none && !is_blocked)
      if (auto const composed = tables.compose(codes[starter], code); composed != 0) {
        codes[starter] = composed;
        continue;
      }
    if (number == 0) starter = size;
    last_class = number;
    codes[size++] = code;
  }
  codes.resize(size);
}

} // namespace

std::string to_nfc(std::string_view text) {
  // Code points below U+0300, the first whose UTF-8 begins with 0xcc, are already composed.
  constexpr unsigned char first_mark = 0xcc;
  if (std::ranges::none_of(text, [](char byte) { return static_cast<unsigned char>(byte) >= first_mark; }))
    return std::string(text);
  auto codes = decomposed(text);
  reorder(codes);
  compose(codes);
  std::string normalized;
  for (auto const code : codes)
    normalized +=
        code >= num_code_points ? std::string(1, static_cast<char>(code - num_code_points)) : to_utf8(code);
  return normalized;
}

} // namespace orthant::tokens
