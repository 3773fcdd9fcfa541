// SPDX-License-Identifier: Apache-2.0
#include "models/lm/training/lm_memory.hpp"

#include "models/lm/transformer/transformer.hpp"
#include "models/lm/transformer/transformer_parameters.hpp"
#include "models/training/parameter_update.hpp"

#include <utility>

namespace orthant::models {
namespace {

std::vector<std::int64_t> normed_lengths_of(pmm::StepPlan const& step,
                                            std::vector<PlannedTransformerParameter> const& parameters) {
  std::vector<std::int64_t> lengths;
  for (auto const& parameter : parameters)
    lengths.push_back(
        normed_length_of(step, parameter.role, parameter.placement, parameter.of_expert.has_value()));
  return lengths;
}

std::int64_t numbers_of_experts(pmm::StepPlan const& step,
                                std::vector<PlannedTransformerParameter> const& parameters) {
  auto const lengths = lengths_of(step, parameters);
  std::int64_t sum = 0;
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (parameters[p].of_expert) sum += lengths[p];
  return sum;
}

} // namespace

TransformerPlan plan_for_memory(TransformerPlan plan, pmm::GridShape const& shape) {
  plan.experts = plan_for_memory(std::move(plan.experts), shape);
  return plan;
}

void plan_language_model_arrays(pmm::StepPlan& step, TransformerPlan const& plan,
                                SequenceSettings const& sequences, OptimizerSettings const& optimizer) {
  auto const parameters = parameters_of(step.shape(), step.coordinates(), plan);
  auto const lengths = lengths_of(step, parameters);
  plan_transformer_arrays(step, plan);
  pmm::plan_loss_arrays(step, plan.logits, pmm::LossKind::softmax);
  plan_sequence_rows_arrays(step, plan.sequences.size() * plan.sequence, sequences.num_accumulated);
  plan_update_arrays(step, optimizer, lengths);
  plan_gradient_sum_array(step, lengths, sequences.num_accumulated, numbers_of_experts(step, parameters));
}

void plan_language_model_step(pmm::StepPlan& step, TransformerPlan const& plan,
                              SequenceSettings const& sequences, OptimizerSettings const& optimizer,
                              std::int64_t bucket_bytes) {
  auto const parameters = parameters_of(step.shape(), step.coordinates(), plan);
  auto const lengths = lengths_of(step, parameters);
  auto const num_of_experts = numbers_of_experts(step, parameters);
  for (std::int64_t k = 0; k < sequences.num_accumulated; ++k) {
    plan_transformer_forward(step, plan);
    pmm::plan_loss(step, plan.logits, pmm::LossKind::softmax, true);
    plan_transformer_backward(step, plan);
    plan_add_gradients(step, lengths, k, sequences.num_accumulated, num_of_experts);
  }
  constexpr std::int64_t loss_and_count = 2;
  step.add_call(runtime::Operation::all_reduce, pmm::batch_axes(step.shape()),
                loss_and_count * std::int64_t{sizeof(double)});
  plan_gradient_sum(step, lengths, sequences.num_accumulated, bucket_bytes, num_of_experts);
  plan_update(step, optimizer, lengths, normed_lengths_of(step, parameters));
}

template<class T>
MemoryEstimate estimate_memory(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                               TransformerPlan const& plan, SequenceSettings const& sequences,
                               OptimizerSettings const& optimizer) {
  auto const of_memory = plan_for_memory(plan, shape);
  pmm::StepPlan arrays(shape, coordinates, sizeof(T));
  plan_language_model_arrays(arrays, of_memory, sequences, optimizer);
  pmm::StepPlan work(shape, coordinates, sizeof(T));
  plan_language_model_step(work, of_memory, sequences, optimizer);
  return {.arrays = bytes_held(arrays),
          .loading = peak_bytes(arrays),
          .messages = message_bytes(work),
          .products = product_library_bytes<T>(work)};
}

template<class T>
MemoryEstimate estimate_memory(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                               SequenceSettings const& sequences, OptimizerSettings const& optimizer) {
  auto estimate = estimate_memory<T>(grid.shape(), grid.coordinates(), plan, sequences, optimizer);
  pmm::StepPlan const step(grid.shape(), grid.coordinates(), sizeof(T));
  auto const parameters = parameters_of(grid.shape(), grid.coordinates(), plan);
  estimate.messages +=
      bytes_of_early_sums(grid, step, lengths_of(step, parameters), numbers_of_experts(step, parameters));
  return estimate;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template MemoryEstimate estimate_memory<T>(pmm::GridShape const&, pmm::Coordinates const&,                 \
                                             TransformerPlan const&, SequenceSettings const&,                \
                                             OptimizerSettings const&);                                      \
  template MemoryEstimate estimate_memory<T>(pmm::ProcessGrid const&, TransformerPlan const&,                \
                                             SequenceSettings const&, OptimizerSettings const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
