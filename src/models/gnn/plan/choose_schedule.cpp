// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/choose_schedule.hpp"

#include "models/gnn/plan/network_step.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

std::vector<Schedule> schedules_of(std::string_view word) {
  if (word != "auto") return {parse_schedule(word)};
  return {Schedule::pmm3d, Schedule::rows};
}

} // namespace

EpochSeconds full_graph_seconds(graph::StoreFacts const& facts, NetworkSettings const& settings,
                                pmm::Machine const& machine) {
  return [=](pmm::GridShape const& shape, Schedule schedule) {
    auto asked = settings;
    asked.schedule = schedule;
    asked.hidden_axes = asked.overlaps ? pmm::hidden_axes_on(machine, shape) : pmm::AxisSet{};
    auto const plan = plan_network(facts, asked);
    pmm::Coordinates const first; // larger parts come first
    pmm::StepPlan step(shape, first, sizeof(float));
    plan_epoch(step, plan, asked, traits_of(facts, shape, first, plan, asked));
    return seconds_of(step, machine);
  };
}

std::vector<GridChoice> rank_grids(GridQuestion const& question, EpochSeconds const& seconds) {
  auto const shapes = question.grid == "auto"
                          ? pmm::all_shapes(question.num_ranks)
                          : std::vector{pmm::parse_grid(question.grid, question.num_ranks)};
  std::vector<GridChoice> choices;
  for (auto const& shape : shapes)
    for (auto const schedule : schedules_of(question.schedule))
      choices.push_back({shape, schedule});
  if (choices.size() == 1) return choices;
  for (auto& choice : choices)
    choice.seconds = seconds(choice.shape, choice.schedule).total();
  std::ranges::stable_sort(choices, {}, &GridChoice::seconds);
  return choices;
}

std::string_view open_schedules(NetworkSettings const& settings, std::string_view word) {
  auto const has_one = weighs_neighbours(settings) || predicts_links(settings);
  return has_one && word == "auto" ? "rows" : word;
}

GridChoice choose_grid(GridQuestion const& question, EpochSeconds const& seconds) {
  return rank_grids(question, seconds).front();
}

} // namespace orthant::models
