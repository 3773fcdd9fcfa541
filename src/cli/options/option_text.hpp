#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options that are whole numbers in a notation of their own.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

/// A whole number from 1 to `most`. Throws UserError, naming the option, where the text is none.
[[nodiscard]] std::int64_t parse_count(std::string_view option, std::string_view text, std::int64_t most);

/// "100-128-128-47": the features, the outputs of the hidden layers, the classes. Throws UserError where the
/// text is no list of at least two numbers.
[[nodiscard]] std::vector<std::int64_t> parse_widths(std::string_view text);

/// A word quoted as a shell reads it back: "a b" is 'a b'; words that need no quotes stay as they are.
[[nodiscard]] std::string quoted(std::string const& word);

} // namespace orthant::cli
