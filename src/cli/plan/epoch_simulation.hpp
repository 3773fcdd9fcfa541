#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// plan --simulate: an epoch on the best grid of each schedule, played by all ranks message by message.

#include "cli/options/command.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/simulated_epoch.hpp"

#include <map>
#include <string>
#include <vector>

namespace orthant::cli {

struct SimulationOptions {
  bool simulate = false;
  std::vector<std::string> stragglers; // "RANK:FACTOR"
};

void add_simulation_options(Command& command, SimulationOptions& options);

/// Throws UserError if options make no sense beside the others. `machine`: as the user named it.
void require_fitting_simulation(SimulationOptions const& options, std::string const& machine,
                                std::int64_t ranks);

/// Simulates epochs on one machine.
class EpochSimulation {
 public:
  /// `store`: null if the graph is known by its counts alone. With --trace the timelines of the first epoch go to the context.
  EpochSimulation(Context& context, SimulationOptions const& options, graph::StoreFacts const& facts,
                  graph::GraphStore const* store, pmm::Machine const& machine);

  [[nodiscard]] pmm::SimulatedSeconds run(pmm::GridShape const& shape, models::GcnSettings const& settings);

 private:
  Context& context_;
  std::map<int, double> stragglers_;
  graph::StoreFacts const& facts_;
  graph::GraphStore const* store_;
  pmm::Machine const& machine_;
};

/// A line for readers; `predicted` is the sum of the list.
[[nodiscard]] std::string text_of(pmm::SimulatedSeconds const& seconds, double predicted);
void add_to(nlohmann::ordered_json& line, pmm::SimulatedSeconds const& seconds);

} // namespace orthant::cli
