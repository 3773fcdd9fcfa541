// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/cost_columns.hpp"

#include <fmt/format.h>

namespace orthant::cli {

std::string headings_of_seconds(Network network) {
  auto const sparse = network == Network::graph ? fmt::format("{:>10}", "sparse") : std::string();
  return fmt::format("{:>11}{}{:>10}{:>10}{:>10}  {}", "ms", sparse, "dense", "passes", "calls", "bound by");
}

std::string cells_of_seconds(pmm::StepSeconds const& seconds, Network network) {
  auto const cell = [](double term) { return fmt::format("{:>10.4g}", term * milliseconds_per_second); };
  auto cells = fmt::format("{:>11.4g}", seconds.total() * milliseconds_per_second);
  if (network == Network::graph) cells += cell(seconds.sparse);
  for (auto const term : {seconds.dense, seconds.passes, seconds.communication() - seconds.hidden})
    cells += cell(term);
  return cells + "  " + seconds.bound();
}

void add_seconds(nlohmann::ordered_json& line, pmm::StepSeconds const& seconds, Network network) {
  line["seconds"] = seconds.total();
  if (network == Network::graph) line["sparse_seconds"] = seconds.sparse;
  line["dense_seconds"] = seconds.dense;
  line["pass_seconds"] = seconds.passes;
  line["call_seconds"] = seconds.calls;
  line["hidden_seconds"] = seconds.hidden;
  line["bound"] = seconds.bound();
}

std::string text_of(pmm::LeftOut const& left_out, pmm::Machine const& machine, bool is_none_left,
                    std::string const& advice) {
  if (left_out.num_costs == 0) return {};
  auto const is_one = left_out.num_costs == 1;
  return fmt::format("{} grid{} need{} more than the {:.1f} GB of a rank of {}{}", left_out.num_costs,
                     is_one ? "" : "s", is_one ? "s" : "", machine.memory.bytes / giga, machine.name,
                     is_none_left ? fmt::format("; the least is {:.1f} GB: {}",
                                                static_cast<double>(left_out.least_bytes) / giga, advice)
                                  : "");
}

} // namespace orthant::cli
