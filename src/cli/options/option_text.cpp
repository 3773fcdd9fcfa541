// SPDX-License-Identifier: Apache-2.0
#include "cli/options/option_text.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace orthant::cli {

std::int64_t parse_count(std::string_view option, std::string_view text, std::int64_t most) {
  std::int64_t count = 0;
  auto const* const end = text.data() + text.size();
  auto const parsed = std::from_chars(text.data(), end, count);
  if (parsed.ec != std::errc{} || parsed.ptr != end || count < 1 || count > most)
    runtime::throw_user("{}: '{}' is no whole number from 1 to {}", option, text, most);
  return count;
}

std::vector<std::int64_t> parse_widths(std::string_view text) {
  constexpr auto most = std::int64_t{1} << 20;
  std::vector<std::int64_t> widths;
  for (auto rest = text;;) {
    auto const dash = rest.find('-');
    widths.push_back(parse_count("--widths", rest.substr(0, dash), most));
    if (dash == std::string_view::npos) break;
    rest.remove_prefix(dash + 1);
  }
  if (widths.size() < 2)
    runtime::throw_user("--widths {}: a layer has two, its input and its output, such as 100-47", text);
  return widths;
}

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
