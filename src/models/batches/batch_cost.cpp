// SPDX-License-Identifier: Apache-2.0
#include "models/batches/batch_cost.hpp"

#include "sampling/sampler.hpp"

#include <algorithm>
#include <limits>

namespace orthant::models {
namespace {

/// Of an epoch: N vertices in T batches.
std::int64_t mean_batch(std::int64_t num_vertices, std::int64_t num_batches) {
  return std::max<std::int64_t>(1, (num_vertices + num_batches / 2) / num_batches);
}

BatchCost cost_of(pmm::GridShape const& shape, graph::StoreFacts const& facts, NetworkSettings settings,
                  BatchSizes const& batches, pmm::Machine const& machine,
                  OptimizerSettings const& optimizer) {
  settings.hidden_axes = settings.overlaps ? pmm::hidden_axes_on(machine, shape) : pmm::AxisSet{};
  auto const plan = plan_network(facts, settings);
  auto const num_batches = *num_batches_of(facts.num_vertices, batches, shape.data);
  BatchCost cost{.schedule = settings.schedule,
                 .shape = shape,
                 .num_steps = num_steps_of(facts.num_vertices, batches, shape.data),
                 .num_vertices = mean_batch(facts.num_vertices, num_batches)};
  for (auto const& coordinates : ranks_to_list(shape, plan)) {
    auto const step = list_of_batches(shape, coordinates, facts, plan, settings, batches, optimizer);
    cost.sent_bytes = std::max(cost.sent_bytes, cost.num_steps * sent_bytes_of(step));
    cost.num_calls = std::max(cost.num_calls, cost.num_steps * std::ssize(calls_of(step)));
    auto const seconds = seconds_of(step, machine) * static_cast<double>(cost.num_steps);
    if (seconds.total() > cost.seconds.total()) cost.seconds = seconds;
    pmm::StepPlan arrays(shape, coordinates, sizeof(float));
    plan_mini_batch_arrays(arrays, facts, plan, settings, optimizer, batches);
    cost.array_bytes = std::max({cost.array_bytes, bytes_held(arrays), peak_bytes(arrays)});
  }
  return cost;
}

} // namespace

std::optional<std::int64_t> num_batches_of(std::int64_t num_vertices, BatchSizes const& batches,
                                           int num_groups) {
  if (batches.num_accumulated > num_vertices) return std::nullopt;
  auto const num_wanted = sampling::divided_up(num_vertices, batches.num_vertices);
  auto const of_step = num_groups * batches.num_accumulated;
  auto const num_batches = sampling::divided_up(num_wanted, of_step) * of_step;
  if (num_wanted < num_groups || num_batches > num_vertices) return std::nullopt;
  return num_batches;
}

std::int64_t num_steps_of(std::int64_t num_vertices, BatchSizes const& batches, int num_groups) {
  auto const num_batches = num_batches_of(num_vertices, batches, num_groups);
  return num_batches ? *num_batches / (num_groups * batches.num_accumulated) : 1;
}

bool can_train_batches(pmm::GridShape const& shape, std::int64_t num_vertices, BatchSizes const& batches) {
  return batches.num_vertices >= std::max({shape.x, shape.y, shape.z}) &&
         num_batches_of(num_vertices, batches, shape.data).has_value();
}

pmm::StepPlan list_of_batches(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                              graph::StoreFacts const& facts, NetworkPlan const& plan,
                              NetworkSettings const& settings, BatchSizes const& batches,
                              OptimizerSettings const& optimizer) {
  auto const num_batches = num_batches_of(facts.num_vertices, batches, shape.data);
  ORTHANT_REQUIRE(num_batches.has_value(), "no epoch of batches on ", shape.to_string());
  auto const batch =
      expected_batch(shape, coordinates, facts, plan, settings, mean_batch(facts.num_vertices, *num_batches));
  pmm::StepPlan step(shape, coordinates, sizeof(float));
  plan_batch_step(step, std::vector(static_cast<std::size_t>(batches.num_accumulated), batch), settings,
                  optimizer);
  return step;
}

std::vector<BatchCost> costs_of_batches(int num_ranks, graph::StoreFacts const& facts,
                                        NetworkSettings const& settings, BatchSizes const& batches,
                                        std::int64_t least_width, pmm::Machine const& machine,
                                        OptimizerSettings const& optimizer) {
  auto const plan = plan_network(facts, settings);
  std::vector<BatchCost> costs;
  for (int data = 1; data <= num_ranks; ++data)
    for (auto const& shape : pmm::all_shapes(num_ranks, data))
      if (can_train_batches(shape, facts.num_vertices, batches) &&
          has_wide_parts(shape, facts, plan, settings, least_width))
        costs.push_back(cost_of(shape, facts, settings, batches, machine, optimizer));
  std::ranges::stable_sort(costs, {}, [](BatchCost const& cost) { return cost.seconds.total(); });
  return costs;
}

EpochSeconds mini_batch_seconds(graph::StoreFacts const& facts, NetworkSettings const& settings,
                                BatchSizes const& batches, pmm::Machine const& machine) {
  return [=](pmm::GridShape const& shape, Schedule schedule) -> pmm::StepSeconds {
    if (!can_train_batches(shape, facts.num_vertices, batches)) {
      pmm::StepSeconds never;
      never.sparse = std::numeric_limits<double>::infinity();
      return never;
    }
    auto asked = settings;
    asked.schedule = schedule;
    asked.hidden_axes = asked.overlaps ? pmm::hidden_axes_on(machine, shape) : pmm::AxisSet{};
    auto const step = list_of_batches(shape, {}, facts, plan_network(facts, asked), asked, batches);
    return seconds_of(step, machine) *
           static_cast<double>(num_steps_of(facts.num_vertices, batches, shape.data));
  };
}

} // namespace orthant::models
