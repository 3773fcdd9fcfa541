#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What plan and plan-lm share: they take the command line of a training, plan for a number of ranks, and print the training's command.
//
// What the tables of grids have in common: the columns of a machine's seconds, and what is said of grids that do not fit.
//
// plan --simulate and plan-lm --simulate: an epoch or a step on the best grid, played by all ranks message by message.

#include "cli/machine/units.hpp"
#include "cli/options/command.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/simulate/simulated_step.hpp"

#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

/// --ranks.
void add_ranks_option(Command& command, std::optional<std::int64_t>& ranks, std::int64_t most);

/// --ranks, or if it is not given the ranks of --grid, or of the job. Throws UserError if both are given and differ.
[[nodiscard]] std::int64_t planned_ranks(std::optional<std::int64_t> const& ranks, std::string const& grid,
                                         runtime::Communicator const& world);

/// The flags that a training must repeat, as the user gave them, " --hidden 64 --no-bias": all but those of every command,
/// those that the plan decides (--grid, --schedule and what chooses them), and `own` ones of the planning command.
[[nodiscard]] std::string given_flags(Context const& context, std::initializer_list<std::string_view> own);

inline constexpr double milliseconds_per_second = 1e3;

/// A language model has no sparse products.
enum class Network : std::uint8_t { graph, language_model };

/// "ms", the terms, and "bound by".
[[nodiscard]] std::string headings_of_seconds(Network network);
[[nodiscard]] std::string cells_of_seconds(pmm::StepSeconds const& seconds, Network network);
/// The same as fields of a JSON line, in seconds.
void add_seconds(nlohmann::ordered_json& line, pmm::StepSeconds const& seconds, Network network);

/// "3 grids need more than the 40.0 GB of a rank of perlmutter", and if none is left what the least is; empty if none was left
/// out. `is_none_left`: no grid fits. `advice`: "take more ranks".
[[nodiscard]] std::string text_of(pmm::LeftOut const& left_out, pmm::Machine const& machine,
                                  bool is_none_left, std::string const& advice);

struct SimulationOptions {
  bool simulate = false;
  std::vector<std::string> stragglers; // "RANK:FACTOR"
};

/// `what` is played, on which grids: "an epoch on the best grid of each schedule".
void add_simulation_options(Command& command, SimulationOptions& options, std::string const& what);

/// Throws UserError if options make no sense beside the others. `machine`: as the user named it.
void require_fitting_simulation(SimulationOptions const& options, std::string const& machine,
                                std::int64_t ranks);

/// Plays what it is given, if the user asks for it.
class Simulation {
 public:
  using Play = std::function<pmm::SimulatedSeconds(pmm::SimulationSettings)>;

  /// With --trace the timelines of the first run go to the context.
  Simulation(Context& context, SimulationOptions const& options);

  [[nodiscard]] std::optional<pmm::SimulatedSeconds> run(pmm::GridShape const& shape, Play const& play);

 private:
  Context& context_;
  bool is_wanted_;
  std::map<int, double> stragglers_;
};

/// Of steps that follow one another.
[[nodiscard]] pmm::SimulatedSeconds operator*(pmm::SimulatedSeconds const& step, double num_steps);

/// A line for readers; `predicted` is the sum of the list.
[[nodiscard]] std::string text_of(pmm::SimulatedSeconds const& seconds, double predicted);
void add_to(nlohmann::ordered_json& line, pmm::SimulatedSeconds const& seconds);

} // namespace orthant::cli
