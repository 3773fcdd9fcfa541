// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/planned_training.hpp"

#include "cli/options/shell_word.hpp"
#include "pmm/grid/process_grid.hpp"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>

namespace orthant::cli {
namespace {

std::string flag_text_of(nlohmann::ordered_json const& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::vector<std::string> texts;
  for (auto const& one : value)
    texts.push_back(flag_text_of(one));
  return fmt::format("{}", fmt::join(texts, ","));
}

} // namespace

void add_ranks_option(Command& command, std::optional<std::int64_t>& ranks, std::int64_t most) {
  command.option("--ranks", ranks,
                 "Number of ranks to plan for; by default those of --grid, or of this job if that is auto",
                 whole_number(1, most));
}

std::int64_t planned_ranks(std::optional<std::int64_t> const& ranks, std::string const& grid,
                           runtime::Communicator const& world) {
  auto const shape = pmm::read_grid(grid); // what is no grid is refused where it is parsed
  auto const of_grid = shape ? shape->num_ranks() : world.size();
  if (ranks && shape && *ranks != of_grid)
    runtime::throw_user("--ranks {}: --grid {} is for {} ranks; leave out one of them", *ranks, grid,
                        of_grid);
  return ranks.value_or(of_grid);
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
