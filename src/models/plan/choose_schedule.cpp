// SPDX-License-Identifier: Apache-2.0
#include "models/plan/choose_schedule.hpp"

#include "models/plan/gcn_step.hpp"

#include <optional>

namespace orthant::models {

pmm::StepSeconds epoch_seconds(graph::StoreFacts const& facts, GcnSettings const& settings,
                               pmm::GridShape const& shape, pmm::Machine const& machine) {
  auto const plan = plan_gcn(facts, settings);
  pmm::Coordinates const first; // larger parts come first
  pmm::StepPlan step(shape, first, sizeof(float));
  plan_epoch(step, plan, settings, traits_of(facts, shape, first, plan, settings));
  return seconds_of(step, machine);
}

Schedule choose_schedule(std::string_view word, graph::StoreFacts const& facts, GcnSettings const& settings,
                         pmm::GridShape const& shape, pmm::Machine const& machine) {
  if (word != "auto") return parse_schedule(word);
  if (shape.size(pmm::group_axes) == 1) return Schedule::pmm3d;
  auto const seconds_in = [&](Schedule schedule) {
    auto asked = settings;
    asked.schedule = schedule;
    return epoch_seconds(facts, asked, shape, machine).total();
  };
  return seconds_in(Schedule::rows) < seconds_in(Schedule::pmm3d) ? Schedule::rows : Schedule::pmm3d;
}

pmm::GridShape choose_grid(std::string_view text, int num_ranks, std::string_view schedule,
                           graph::StoreFacts const& facts, GcnSettings const& settings,
                           pmm::Machine const& machine, int data) {
  if (text != "auto") return pmm::parse_grid(text, num_ranks);
  std::optional<std::pair<double, pmm::GridShape>> best;
  for (auto const& shape : pmm::all_shapes(num_ranks, data)) {
    auto asked = settings;
    asked.schedule = choose_schedule(schedule, facts, settings, shape, machine);
    auto const seconds = epoch_seconds(facts, asked, shape, machine).total();
    if (!best || seconds < best->first) best = {seconds, shape};
  }
  return best->second;
}

} // namespace orthant::models
