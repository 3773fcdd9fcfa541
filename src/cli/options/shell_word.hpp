#pragma once
// SPDX-License-Identifier: Apache-2.0

#include <string>

namespace orthant::cli {

/// A word quoted as a shell reads it back: "a b" is 'a b'; words that need no quotes stay as they are.
[[nodiscard]] std::string quoted(std::string const& word);

} // namespace orthant::cli
