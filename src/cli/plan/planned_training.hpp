#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Parts that plan and plan-lm share: --ranks and the printed command of the training, columns of the tables of grids, and simulations.

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

// Options: both commands accept the command line of a training and plan it for a number of ranks.

/// Declares --ranks.
void add_ranks_option(Command& command, std::optional<std::int64_t>& ranks, std::int64_t most);

/// Returns --ranks, or if it is not given the ranks of --grid in each of the `pipeline` stages, or else of the job. Throws UserError if
/// --ranks and --grid are given and differ.
[[nodiscard]] std::int64_t planned_ranks(std::optional<std::int64_t> const& ranks, std::string const& grid,
                                         runtime::Communicator const& world, std::int64_t pipeline = 1);

/// Flags of the printed training command, as the user gave them: " --hidden 64 --no-bias". Leaves out the options that all commands have,
/// those that the plan decides (--grid, --schedule and the options that choose them), and the planning command's `own` options.
[[nodiscard]] std::string given_flags(Context const& context, std::initializer_list<std::string_view> own);

// Tables of grids: columns of predicted seconds, and a note on grids that do not fit.

inline constexpr double milliseconds_per_second = 1e3;

/// Kind of network; a language model has no column of sparse products.
enum class Network : std::uint8_t { graph, language_model };

/// Headings of these columns: "ms", the terms, and "bound by".
[[nodiscard]] std::string headings_of_seconds(Network network);
[[nodiscard]] std::string cells_of_seconds(pmm::StepSeconds const& seconds, Network network);
/// Adds the same values to a JSON line, in seconds.
void add_seconds(nlohmann::ordered_json& line, pmm::StepSeconds const& seconds, Network network);

/// Note on grids that do not fit: "3 grids need more than the 40.0 GB of a rank of perlmutter"; empty if all fit. If no grid fits
/// (`is_none_left`), it also gives the smallest memory that a grid needs, and `advice` such as "take more ranks".
[[nodiscard]] std::string text_of(pmm::LeftOut const& left_out, pmm::Machine const& machine,
                                  bool is_none_left, std::string const& advice);

// --simulate: an epoch or a step on the best grid is simulated on all ranks, message by message.

struct SimulationOptions {
  bool simulate = false;
  std::vector<std::string> slow_ranks; // "RANK:FACTOR"
};

/// `what` is simulated, for the help: "an epoch on the best grid of each schedule".
void add_simulation_options(Command& command, SimulationOptions& options, std::string const& what);

/// Throws UserError if --simulate has no machine, or --slow-ranks has no --simulate or names a rank of `ranks` or above. `machine`: value
/// of --machine.
void require_fitting_simulation(SimulationOptions const& options, std::string const& machine,
                                std::int64_t ranks);

/// Runs simulations if the user asks for them.
class Simulation {
 public:
  using Play = std::function<pmm::SimulatedSeconds(pmm::SimulationSettings)>;

  /// With --trace, stores the timelines of the first run in the context.
  Simulation(Context& context, SimulationOptions const& options);

  [[nodiscard]] std::optional<pmm::SimulatedSeconds> run(pmm::GridShape const& shape, Play const& play);

 private:
  Context& context_;
  bool is_wanted_;
  std::map<int, double> stragglers_;
};

/// Seconds of `num_steps` equal steps, one after the other.
[[nodiscard]] pmm::SimulatedSeconds operator*(pmm::SimulatedSeconds const& step, double num_steps);

/// Line of text with the simulated seconds; `predicted`: seconds that the step plan predicts without simulation.
[[nodiscard]] std::string text_of(pmm::SimulatedSeconds const& seconds, double predicted);
void add_to(nlohmann::ordered_json& line, pmm::SimulatedSeconds const& seconds);

} // namespace orthant::cli
