#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// plan --simulate and plan-lm --simulate: an epoch or a step on the best grid, played by all ranks message by message.

#include "cli/options/command.hpp"
#include "pmm/simulate/simulated_step.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orthant::cli {

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
