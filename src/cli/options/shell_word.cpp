// SPDX-License-Identifier: Apache-2.0
#include "cli/options/shell_word.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace orthant::cli {

std::string quoted(std::string const& word) {
  auto const is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_./:=,+-").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  std::string text = "'";
  for (auto const c : word)
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

} // namespace orthant::cli
