#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// "Did you mean": finds the known word that a mistyped one probably means.

#include <fmt/format.h>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::runtime {

/// Number of insertions, deletions, replacements and swaps of adjacent letters that turn one word into the other (optimal string
/// alignment).
[[nodiscard]] std::size_t edit_distance(std::string_view x, std::string_view y);

namespace detail {
[[nodiscard]] std::optional<std::string> closest_match(std::string_view word,
                                                       std::vector<std::string_view> const& candidates);
}

/// The candidate for which `word` is a common other name (batch-size for batch), or the nearest candidate. A candidate is near if at most a
/// third of the longer word's letters differ, or if it begins with `word` (three letters or more). Case and '-' or '_' do not matter. Of
/// equally near candidates, the first is returned.
template<std::ranges::input_range Candidates>
[[nodiscard]] std::optional<std::string> closest_match(std::string_view word, Candidates const& candidates) {
  std::vector<std::string_view> views;
  for (auto const& candidate : candidates)
    views.emplace_back(candidate);
  return detail::closest_match(word, views);
}

/// "; did you mean 'lr'?" or an empty text, for the end of a message. `prefix` comes before the suggested word ("--").
template<std::ranges::input_range Candidates>
[[nodiscard]] std::string did_you_mean(std::string_view word, Candidates const& candidates,
                                       std::string_view prefix = "") {
  auto const match = closest_match(word, candidates);
  return match ? fmt::format("; did you mean '{}{}'?", prefix, *match) : std::string();
}

} // namespace orthant::runtime
