// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/simulation.hpp"

#include "cli/plan/cost_columns.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <charconv>

namespace orthant::cli {
namespace {

constexpr std::size_t most_stretches = std::size_t{1} << 12; // of a rank, in a trace

/// Whether all of the text is that number.
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
        "--stragglers {}: give ranks with how many times as long they compute, such as 3:1.5,7:2", text);
  return {rank, factor};
}

} // namespace

void add_simulation_options(Command& command, SimulationOptions& o, std::string const& what) {
  command.flag("--simulate", o.simulate,
               fmt::format("Play {}: all ranks, message by message (with --trace: its timeline)", what));
  command.option("--stragglers", o.stragglers,
                 "Ranks that compute slower in it, with how many times as long they take: 3:1.5,7:2");
}

void require_fitting_simulation(SimulationOptions const& o, std::string const& machine, std::int64_t ranks) {
  if (o.simulate && machine.empty())
    runtime::throw_user("--simulate plays on a machine: name one, such as --machine perlmutter");
  if (!o.simulate && !o.stragglers.empty())
    runtime::throw_user("--stragglers are ranks of a simulation: add --simulate");
  for (auto const& text : o.stragglers)
    if (auto const rank = parse_straggler(text).first; rank >= ranks)
      runtime::throw_user("--stragglers {}: there are {} ranks; give one below {}", text, ranks, ranks);
}

Simulation::Simulation(Context& context, SimulationOptions const& options)
    : context_(context),
      is_wanted_(options.simulate) {
  for (auto const& text : options.stragglers)
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
