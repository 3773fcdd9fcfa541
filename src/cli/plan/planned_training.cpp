// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/planned_training.hpp"

#include "cli/options/option_text.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
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
                           runtime::Communicator const& world, std::int64_t pipeline) {
  auto const shape = pmm::read_grid(grid); // parse_grid() refuses invalid text later
  auto const of_grid = shape ? pipeline * shape->num_ranks() : world.size();
  if (ranks && shape && *ranks != of_grid)
    runtime::throw_user("--ranks {}: --grid {}{} is for {} ranks; leave out one of them", *ranks, grid,
                        pipeline > 1 ? fmt::format(" --pipeline {}", pipeline) : std::string(), of_grid);
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
    else if (name == "bias" || name == "tied-head") // flags that are on by default
      flags += fmt::format(" --no-{}", name);
  }
  return flags;
}

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

namespace {

constexpr std::size_t most_stretches = std::size_t{1} << 12; // per rank in a trace

/// Parses a number; returns true if it is the whole text.
template<class T>
bool parse(std::string_view text, T& value) {
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::pair<int, double> parse_straggler(std::string_view text) {
  auto const colon = std::min(text.find(':'), text.size());
  auto rank = -1;
  auto factor = 0.0;
  auto const is_complete =
      colon < text.size() && parse(text.substr(0, colon), rank) && parse(text.substr(colon + 1), factor);
  if (!is_complete || rank < 0 || !(factor > 0) || factor > largest_number)
    runtime::throw_user(
        "--slow-ranks {}: give ranks with how many times as long they compute, such as 3:1.5,7:2", text);
  return {rank, factor};
}

} // namespace

void add_simulation_options(Command& command, SimulationOptions& o, std::string const& what) {
  command.flag("--simulate", o.simulate,
               fmt::format("Simulate {} on all ranks, message by message; the file of --trace, if any, has "
                           "the simulated timeline",
                           what));
  command.option(
      "--slow-ranks", o.slow_ranks,
      "Ranks that compute slower in the simulation, and the factor by which they take longer, such "
      "as 3:1.5,7:2");
}

void require_fitting_simulation(SimulationOptions const& o, std::string const& machine, std::int64_t ranks) {
  if (o.simulate && machine.empty())
    runtime::throw_user("--simulate needs a machine to simulate: name one, such as --machine perlmutter");
  if (!o.simulate && !o.slow_ranks.empty())
    runtime::throw_user("--slow-ranks are ranks of a simulation: add --simulate");
  for (auto const& text : o.slow_ranks)
    if (auto const rank = parse_straggler(text).first; rank >= ranks)
      runtime::throw_user("--slow-ranks {}: there are {} ranks; give one below {}", text, ranks, ranks);
}

Simulation::Simulation(Context& context, SimulationOptions const& options)
    : context_(context),
      is_wanted_(options.simulate) {
  for (auto const& text : options.slow_ranks)
    stragglers_.insert(parse_straggler(text));
}

std::optional<pmm::SimulatedSeconds> Simulation::run(pmm::GridShape const& shape, Play const& play) {
  if (!is_wanted_) return std::nullopt;
  pmm::SimulationSettings simulation;
  simulation.stragglers = stragglers_;
  auto& timelines = context_.timelines;
  if (context_.environment.instruments()->trace.is_on() && timelines.empty()) {
    using Clock = runtime::Trace::Clock;
    auto const time_of = [](double seconds) {
      return Clock::time_point(std::chrono::round<Clock::duration>(std::chrono::duration<double>(seconds)));
    };
    for (int rank = 0; rank < shape.num_ranks(); ++rank)
      timelines.emplace_back().start(most_stretches, Clock::time_point());
    simulation.watch = [&timelines, time_of](pmm::SimulatedStretch const& stretch) {
      timelines[static_cast<std::size_t>(stretch.rank)].add(
          stretch.name, stretch.axis.empty() ? "regions" : stretch.axis, time_of(stretch.begin),
          time_of(stretch.end), stretch.bytes);
    };
  }
  return play(std::move(simulation));
}

pmm::SimulatedSeconds operator*(pmm::SimulatedSeconds const& step, double num_steps) {
  return {num_steps * step.total, num_steps * step.computing, num_steps * step.waiting,
          num_steps * step.calls};
}

std::string text_of(pmm::SimulatedSeconds const& seconds, double predicted) {
  return fmt::format("simulated: {:.4g} ms, where the sum of the list is {:.4g}; the mean rank computes "
                     "{:.4g}, waits {:.4g}, and "
                     "communicates {:.4g}\n",
                     milliseconds_per_second * seconds.total, milliseconds_per_second * predicted,
                     milliseconds_per_second * seconds.computing, milliseconds_per_second * seconds.waiting,
                     milliseconds_per_second * seconds.calls);
}

void add_to(nlohmann::ordered_json& line, pmm::SimulatedSeconds const& seconds) {
  line["simulated_seconds"] = seconds.total;
  line["simulated_computing_seconds"] = seconds.computing;
  line["simulated_waiting_seconds"] = seconds.waiting;
  line["simulated_call_seconds"] = seconds.calls;
}

} // namespace orthant::cli
