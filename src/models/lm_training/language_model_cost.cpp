// SPDX-License-Identifier: Apache-2.0
#include "models/lm_training/language_model_cost.hpp"

#include "models/gnn/grid_cost.hpp"
#include "models/lm/transformer_parameters.hpp"
#include "models/lm_training/language_model.hpp"
#include "models/training/parameter_update.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace orthant::models {

std::vector<pmm::GridShape> shapes_of_language_model(int num_ranks, TransformerSettings const& model,
                                                     SequenceSettings const& sequences, int expert_axis) {
  std::ignore = plan_sequences({1, 1, 1, 1}, {}, model, sequences); // refuses what no grid can train
  if (num_ranks % expert_axis != 0)
    runtime::throw_user("--expert-axis {} does not divide the {} ranks of the job; take a divisor of them",
                        expert_axis, num_ranks);
  std::vector<pmm::GridShape> shapes;
  for (int data = expert_axis; data <= num_ranks; data += expert_axis)
    for (auto shape : pmm::all_shapes(num_ranks, data)) {
      if (!can_cut_heads(shape, model) || std::int64_t{shape.data} * shape.z > sequences.num_sequences())
        continue;
      shape.data /= expert_axis;
      shape.expert = expert_axis;
      shapes.push_back(shape);
    }
  if (shapes.empty())
    runtime::throw_user("{} sequences per pass are fewer than the {} ranks of --expert-axis: give a larger "
                        "--global-batch, or fewer of these",
                        sequences.num_sequences(), expert_axis);
  return shapes;
}

std::int64_t bytes_of_checkpoint(TransformerSettings const& model, SequenceSettings const& sequences,
                                 OptimizerSettings const& optimizer) {
  pmm::GridShape const one{1, 1, 1, 1};
  pmm::Coordinates const first;
  auto const plan = plan_sequences(one, first, model, sequences);
  pmm::StepPlan step(one, first, sizeof(float));
  auto const lengths = lengths_of(step, parameters_of(one, first, plan));
  plan_update_arrays(step, optimizer, lengths);
  return bytes_held(step) + step.scalar_bytes(std::reduce(lengths.begin(), lengths.end()));
}

LanguageModelCost cost_of_language_model(pmm::GridShape const& shape, TransformerSettings const& model,
                                         SequenceSettings const& sequences,
                                         OptimizerSettings const& optimizer, pmm::Machine const& machine,
                                         std::int64_t scalar_bytes) {
  pmm::Coordinates const first; // larger parts come first
  auto const plan = plan_sequences(shape, first, model, sequences);
  pmm::StepPlan step(shape, first, scalar_bytes);
  plan_language_model_step(step, plan, sequences, optimizer);
  auto const of_memory = plan_for_memory(plan, shape);
  pmm::StepPlan arrays(shape, first, scalar_bytes);
  plan_language_model_arrays(arrays, of_memory, sequences, optimizer);
  auto const messages = [&] {
    if (!pmm::runs_on_host) return std::int64_t{0};
    if (!plan.experts.settings.is_on()) return message_bytes(step);
    pmm::StepPlan fullest(shape, first, scalar_bytes);
    plan_language_model_step(fullest, of_memory, sequences, optimizer);
    return message_bytes(fullest);
  };
  return {.shape = shape,
          .sent_bytes = sent_bytes_of(step),
          .num_calls = static_cast<std::int64_t>(calls_of(step).size()),
          .array_bytes = std::max(bytes_held(arrays), peak_bytes(arrays)),
          .message_bytes = messages(),
          .seconds = seconds_of(step, machine)};
}

std::vector<LanguageModelCost> costs_of_language_model(int num_ranks, TransformerSettings const& model,
                                                       SequenceSettings const& sequences,
                                                       OptimizerSettings const& optimizer,
                                                       pmm::Machine const& machine) {
  std::vector<LanguageModelCost> costs;
  for (auto const& shape : shapes_of_language_model(num_ranks, model, sequences))
    costs.push_back(cost_of_language_model(shape, model, sequences, optimizer, machine));
  std::ranges::stable_sort(costs, {}, [](LanguageModelCost const& cost) {
    return std::tuple(cost.seconds.total(), cost.array_bytes);
  });
  return costs;
}

} // namespace orthant::models
