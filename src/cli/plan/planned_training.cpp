// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/planned_training.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <fmt/ranges.h>

namespace orthant::cli {
namespace {

/// The product of the factors of a grid; none if it has no such factors, which whoever reads the grid says.
std::optional<std::int64_t> ranks_of_grid(std::string_view grid) {
  constexpr auto most = std::int64_t{1} << 30;
  std::int64_t product = 1;
  for (auto rest = grid;; rest.remove_prefix(1)) {
    std::int64_t factor = 0;
    auto const [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), factor);
    if (error != std::errc() || factor < 1) return std::nullopt;
    product = std::min(product, most) * std::min(factor, most);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (rest.empty()) return product;
    if (rest.front() != 'x') return std::nullopt;
  }
}

std::string flag_text_of(nlohmann::ordered_json const& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::vector<std::string> texts;
  for (auto const& one : value)
    texts.push_back(flag_text_of(one));
  return fmt::format("{}", fmt::join(texts, ","));
}

/// A word as a shell reads it back.
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

} // namespace

void add_ranks_option(Command& command, std::optional<std::int64_t>& ranks, std::int64_t most) {
  command.option("--ranks", ranks,
                 "Number of ranks to plan for; by default those of --grid, or of this job if that is auto",
                 whole_number(1, most));
}

std::int64_t planned_ranks(std::optional<std::int64_t> const& ranks, std::string const& grid,
                           runtime::Communicator const& world) {
  auto const of_grid = grid == "auto" ? std::nullopt : ranks_of_grid(grid);
  if (ranks && of_grid && *ranks != *of_grid)
    runtime::throw_user("--ranks {}: --grid {} is for {} ranks; leave out one of them", *ranks, grid,
                        *of_grid);
  return ranks.value_or(of_grid.value_or(world.size()));
}

std::string given_flags(Context const& context, std::initializer_list<std::string_view> own) {
  static constexpr std::array<std::string_view, 10> decided{"config",  "force",      "log-level", "metrics",
                                                            "timeout", "trace",      "grid",      "schedule",
                                                            "machine", "measure-top"};
  std::string flags;
  auto const& configuration = context.run_record.at("configuration");
  for (auto const& [name, source] : context.run_record.at("sources").items()) {
    if (source == "default" || source == "preset" || !configuration.contains(name) ||
        std::ranges::find(own, name) != own.end() || std::ranges::find(decided, name) != decided.end())
      continue;
    auto const& value = configuration.at(name);
    if (!value.is_boolean())
      flags += fmt::format(" --{} {}", name, quoted(flag_text_of(value)));
    else if (value.get<bool>())
      flags += fmt::format(" --{}", name);
    else if (name == "bias" || name == "tied-head") // the flags that are set by default
      flags += fmt::format(" --no-{}", name);
  }
  return flags;
}

} // namespace orthant::cli
