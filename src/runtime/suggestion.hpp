#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// "Did you mean": the known word that a mistyped one was probably meant to be.

#include <fmt/format.h>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::runtime {

/// Number of insertions, deletions, replacements and swaps of neighbours that turn one word into the other
/// (optimal string alignment).
[[nodiscard]] std::size_t edit_distance(std::string_view x, std::string_view y);

namespace detail {
[[nodiscard]] std::optional<std::string> closest_match(std::string_view word,
                                                       std::vector<std::string_view> const& candidates);
}

/// The candidate that other programs call `word` (batch-size is batch), or the nearest to it, if it is near: a third of the longer word's letters at most may differ,
/// or `word` (three letters or more) begins it. Case and '-' or '_' do not count. Of equals the first.
template<std::ranges::input_range Candidates>
[[nodiscard]] std::optional<std::string> closest_match(std::string_view word, Candidates const& candidates) {
  std::vector<std::string_view> views;
  for (auto const& candidate : candidates)
    views.emplace_back(candidate);
  return detail::closest_match(word, views);
}

/// "; did you mean 'lr'?" or nothing, for the end of a message. `prefix` goes before the word ("--").
template<std::ranges::input_range Candidates>
[[nodiscard]] std::string did_you_mean(std::string_view word, Candidates const& candidates,
                                       std::string_view prefix = "") {
  auto const match = closest_match(word, candidates);
  return match ? fmt::format("; did you mean '{}{}'?", prefix, *match) : std::string();
}

} // namespace orthant::runtime
