// SPDX-License-Identifier: Apache-2.0
#include "tokens/bpe/pieces.hpp"

#include "runtime/error.hpp"
#include "tokens/bpe/unicode.hpp"
#include "tokens/vocabulary.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace orthant::tokens {
namespace {

struct KnownExpression {
  std::string_view text;
  Pattern pattern;
};

// If a pattern has several expressions, files are written with the first one.
constexpr std::array<KnownExpression, 9> known_expressions{{
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", Pattern::gpt2},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", Pattern::gpt2},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)", Pattern::gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Pattern::llama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     Pattern::llama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Pattern::qwen2},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
     Pattern::cl100k},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     Pattern::llama3},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]|\s+(?!\S)|\s+)",
     Pattern::llama3},
}};

struct Next {
  CharacterClass kind;
  std::size_t num_bytes;
};

/// The characters of a text, from any position on.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text), classes_(UnicodeClasses::get()) {}

  [[nodiscard]] std::size_t size() const { return text_.size(); }
  [[nodiscard]] char byte(std::size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  /// The character at `at`, which must be before the end.
  [[nodiscard]] Next next(std::size_t at) const {
    auto const byte = static_cast<unsigned char>(text_[at]);
    constexpr unsigned char first_of_many = 0x80;
    if (byte < first_of_many) return {classes_.of(byte), 1};
    auto const character = first_character(text_.substr(at, longest_character));
    if (character.num_bytes == 0) return {CharacterClass::other, 1};
    return {classes_.of(character.code_point), character.num_bytes};
  }
  [[nodiscard]] bool is(CharacterClass kind, std::size_t at) const {
    return at < text_.size() && next(at).kind == kind;
  }
  /// End of the run of characters of a class from `at` on, of at most `most` characters.
  [[nodiscard]] std::size_t end_of_run(CharacterClass kind, std::size_t at,
                                       std::size_t most = std::numeric_limits<std::size_t>::max()) const {
    for (std::size_t count = 0; at < text_.size() && count < most; ++count) {
      auto const character = next(at);
      if (character.kind != kind) break;
      at += character.num_bytes;
    }
    return at;
  }
  [[nodiscard]] bool is_line_end(std::size_t at) const { return byte(at) == '\n' || byte(at) == '\r'; }

 private:
  std::string_view text_;
  UnicodeClasses const& classes_;
};

/// Number of bytes of 's, 't, 're, 've, 'm, 'll or 'd at `at`; 0 if there is none. Without regard to case, U+017F is an s.
std::size_t contraction(Scanner const& text, std::size_t at, bool ignores_case) {
  if (text.byte(at) != '\'') return 0;
  auto const letter = [&](std::size_t i) {
    auto const byte = text.byte(at + i);
    return ignores_case && byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte;
  };
  auto const first = letter(1);
  auto const second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  return ignores_case && first == '\xc5' && second == '\xbf' ? 3 : 0;
}

/// \s+(?!\S)|\s+ : a run of white space without its last character, which belongs to the next piece. It includes the last character if
/// there is no other one, or if no text follows. `end` is the end of the run.
std::size_t end_of_spaces(Scanner const& text, std::size_t begin, std::size_t end) {
  if (end == text.size()) return end;
  auto last = begin;
  for (auto at = begin; at < end; at += text.next(at).num_bytes)
    last = at;
  return last == begin ? end : last;
}

std::size_t end_of_gpt2(Scanner const& text, std::size_t begin) {
  if (auto const bytes = contraction(text, begin, false)) return begin + bytes;
  auto const first = begin + (text.byte(begin) == ' ' ? 1U : 0U);
  if (first < text.size())
    if (auto const kind = text.next(first).kind; kind != CharacterClass::space)
      return text.end_of_run(kind, first);
  return end_of_spaces(text, begin, text.end_of_run(CharacterClass::space, begin));
}

std::size_t end_of_llama3(Scanner const& text, std::size_t begin, std::size_t most_digits,
                          bool takes_spaces_at_end) {
  if (auto const bytes = contraction(text, begin, true)) return begin + bytes;
  auto const character = text.next(begin);
  if (character.kind == CharacterClass::letter) return text.end_of_run(CharacterClass::letter, begin);
  if (character.kind == CharacterClass::number)
    return text.end_of_run(CharacterClass::number, begin, most_digits);
  if (auto const after = begin + character.num_bytes;
      !text.is_line_end(begin) && text.is(CharacterClass::letter, after))
    return text.end_of_run(CharacterClass::letter, after);
  if (auto const first = begin + (text.byte(begin) == ' ' ? 1U : 0U); text.is(CharacterClass::other, first)) {
    auto end = text.end_of_run(CharacterClass::other, first);
    while (text.is_line_end(end))
      ++end;
    return end;
  }
  auto const end = text.end_of_run(CharacterClass::space, begin);
  if (takes_spaces_at_end && end == text.size()) return end;
  for (auto at = end; at > begin; --at)
    if (text.is_line_end(at - 1)) return at;
  return end_of_spaces(text, begin, end);
}

std::size_t end_of_digits(Scanner const& text, std::size_t begin, bool is_single) {
  if (text.is(CharacterClass::number, begin))
    return text.end_of_run(CharacterClass::number, begin,
                           is_single ? 1 : std::numeric_limits<std::size_t>::max());
  auto at = begin;
  while (at < text.size()) {
    auto const character = text.next(at);
    if (character.kind == CharacterClass::number) break;
    at += character.num_bytes;
  }
  return at;
}

/// True if a space at `at` follows a character that is no white space.
bool is_cut(Scanner const& scanner, std::string_view text, std::size_t at) {
  if (at == 0 || text[at] != ' ') return false;
  auto first = at - 1;
  while (first > 0 && at - first < longest_character && continues_character(text[first]))
    --first;
  // A byte that does not end a character that began at `first` is no white space.
  auto const character = scanner.next(first);
  return first + character.num_bytes != at || character.kind != CharacterClass::space;
}

} // namespace

std::optional<Pattern> pattern_of(std::string_view regular_expression) {
  auto const* const found = std::ranges::find(known_expressions, regular_expression, &KnownExpression::text);
  if (found == known_expressions.end()) return std::nullopt;
  return found->pattern;
}

std::string_view expression_of(Pattern pattern) {
  auto const* const found = std::ranges::find(known_expressions, pattern, &KnownExpression::pattern);
  ORTHANT_REQUIRE(found != known_expressions.end(), "digits have no expression");
  return found->text;
}

std::size_t end_of_piece(Pattern pattern, std::string_view text, std::size_t begin) {
  constexpr std::size_t digits_of_llama3 = 3;
  Scanner const scanner(text);
  switch (pattern) {
  case Pattern::gpt2:
    return end_of_gpt2(scanner, begin);
  case Pattern::llama3:
    return end_of_llama3(scanner, begin, digits_of_llama3, false);
  case Pattern::cl100k:
    return end_of_llama3(scanner, begin, digits_of_llama3, true);
  case Pattern::qwen2:
    return end_of_llama3(scanner, begin, 1, false);
  case Pattern::single_digits:
    return end_of_digits(scanner, begin, true);
  default:
    return end_of_digits(scanner, begin, false);
  }
}

std::size_t last_cut(std::string_view text, std::size_t from) {
  Scanner const scanner(text);
  for (auto at = text.size(); at-- > from + 1;)
    if (is_cut(scanner, text, at)) return at;
  return 0;
}

std::size_t first_cut(std::string_view text, std::size_t from) {
  Scanner const scanner(text);
  for (auto at = from; at < text.size(); ++at)
    if (is_cut(scanner, text, at)) return at;
  return text.size();
}

} // namespace orthant::tokens
