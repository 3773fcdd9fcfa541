#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Pre-tokenization: cuts a text into pieces, within which a tokenizer merges bytes. The scanners find the same pieces as the regular
// expressions of the reference programs. With \p{L}, \p{N} and \s of Unicode 16:
//
//   gpt2      's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   llama3    (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   qwen2     the same with \p{N}
//   cl100k    llama3 with \s+$ before \s*[\r\n]+
//   digits    \p{N} each (single) or \p{N}+ (runs), and what is between them
//
// A byte that is not part of a UTF-8 character counts as a character that is no letter, number or space.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace orthant::tokens {

enum class Pattern : std::uint8_t { gpt2, llama3, qwen2, cl100k, single_digits, digit_runs };

/// The pattern that a tokenizer.json denotes by this regular expression; nullopt if the expression is unknown.
[[nodiscard]] std::optional<Pattern> pattern_of(std::string_view regular_expression);
/// The regular expression that tokenizer.json has for gpt2, llama3, qwen2 or cl100k.
[[nodiscard]] std::string_view expression_of(Pattern pattern);

/// End of the piece that begins at `begin`, which must be before the end of the text.
[[nodiscard]] std::size_t end_of_piece(Pattern pattern, std::string_view text, std::size_t begin);

/// Splits the text by the first pattern, each of its pieces by the second, and so on. Calls take(piece) for each piece in order.
template<class Take>
void for_each_piece(std::span<Pattern const> patterns, std::string_view text, Take& take) {
  if (patterns.empty()) {
    if (!text.empty()) take(text);
    return;
  }
  for (std::size_t begin = 0; begin < text.size();) {
    auto const end = end_of_piece(patterns.front(), text, begin);
    for_each_piece(patterns.subspan(1), text.substr(begin, end - begin), take);
    begin = end;
  }
}

// A text may be cut before a U+0020 that follows a character that is no white space: the pieces of both parts are those of the whole.

/// The last such position in `text` after `from`, 0 if there is none.
[[nodiscard]] std::size_t last_cut(std::string_view text, std::size_t from);
/// The first such position at or after `from`; the size of the text if there is none.
[[nodiscard]] std::size_t first_cut(std::string_view text, std::size_t from);

} // namespace orthant::tokens
