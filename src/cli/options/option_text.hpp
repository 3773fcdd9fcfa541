#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Parsers of option values in a notation of their own, and shell quoting.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

/// Reads a whole number from 1 to `most`. Throws UserError, which names `option`, if the text is not such a number.
[[nodiscard]] std::int64_t parse_count(std::string_view option, std::string_view text, std::int64_t most);

/// Reads widths such as "100-128-128-47": features, outputs of the hidden layers, classes. Throws UserError if the text is not a list of at
/// least two numbers.
[[nodiscard]] std::vector<std::int64_t> parse_widths(std::string_view text);

/// Quotes a word for a shell: a b becomes 'a b'. Words that need no quotes are returned unchanged.
[[nodiscard]] std::string quoted(std::string const& word);

} // namespace orthant::cli
