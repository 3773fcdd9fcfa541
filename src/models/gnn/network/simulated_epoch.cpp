// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/network/simulated_epoch.hpp"

#include "models/gnn/plan/block_counts.hpp"
#include "models/gnn/plan/network_step.hpp"

#include <algorithm>
#include <utility>

namespace orthant::models {

pmm::SimulatedSeconds simulate_epoch(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                                     NetworkSettings const& settings, pmm::Machine const& machine,
                                     pmm::SimulationSettings simulation, graph::GraphStore const* store,
                                     OptimizerSettings const& optimizer) {
  auto const plan = plan_network(facts, settings);
  auto const blocks = store == nullptr ? std::vector<BlockCounts>() : count_blocks(*store, shape, plan);
  simulation.folds_ranks = store == nullptr && shape.num_ranks() > most_listed_ranks;
  auto const list_of = [&](pmm::Coordinates const& coordinates) {
    pmm::StepPlan step(shape, coordinates, sizeof(float));
    auto traits = traits_of(facts, shape, coordinates, plan, settings);
    auto const even = traits.num_nonzeros;
    traits.num_nonzeros = [&](pmm::Placement const& placement) {
      auto const counted =
          std::ranges::find_if(blocks, [&](BlockCounts const& counts) { return counts.are_of(placement); });
      return counted == blocks.end() ? even(placement) : counted->of(coordinates);
    };
    plan_epoch(step, plan, settings, traits, optimizer);
    return step;
  };
  return pmm::simulate_step(shape, list_of, machine, simulation);
}

} // namespace orthant::models
