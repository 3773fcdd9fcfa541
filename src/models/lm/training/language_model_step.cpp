// SPDX-License-Identifier: Apache-2.0
//
// Planned arrays and operations of the training of a language model, and the memory of a rank according to these lists.
#include "models/gnn/network/grid_choice.hpp"
#include "models/lm/pipeline/stage_messages.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/lm/transformer/transformer.hpp"
#include "models/lm/transformer/transformer_parameters.hpp"
#include "models/training/parameter_update.hpp"
#include "models/training/shard_parts.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <array>
#include <utility>

namespace orthant::models {
namespace {

/// How the gradients of a step are summed, and what this rank updates. Of pruned weights the expected number of entries is kept; none are
/// pruned with `is_before_pruning`.
class SummedGradients {
 public:
  SummedGradients(pmm::StepPlan const& step, std::vector<PlannedTransformerParameter> const& parameters,
                  OptimizerSettings const& optimizer, std::int64_t num_accumulated,
                  std::int64_t bucket_bytes = default_bucket_bytes, bool is_before_pruning = false)
      : shards_gradients_(optimizer.zero_stage > 0 && step.shape().size(pmm::batch_axes(step.shape())) > 1),
        elements_{optimizer.gradient_wire} {
    std::array<std::vector<std::int64_t>, 2> sharded;
    auto const has_several = num_accumulated > 1 || step.shape().size(pmm::batch_axes(step.shape())) > 1;
    std::int64_t num_before = 0; // entries of pruned weights so far
    for (auto const& parameter : parameters) {
      auto const is_of_expert = parameter.of_expert.has_value();
      auto const is_pruned = optimizer.pruning.is_on() && parameter.is_prunable;
      auto length = length_of(step.shape(), step.coordinates(), parameter);
      if (is_pruned && !is_before_pruning) {
        auto const num_stored = length == 0 ? 0 : step.block(parameter.placement).num_stored;
        auto const kept_before = optimizer.pruning.num_kept(num_before);
        num_before += num_stored;
        length = optimizer.pruning.num_kept(num_before) - kept_before;
        updated_.kept.push_back(length);
      }
      if (is_pruned) elements_.num_pruned += length;
      auto const is_whole =
          !shards_gradients_ ||
          !is_sharded(step.shape(), parameter.role, parameter.placement, parameter.is_frozen, is_of_expert);
      whole_.push_back(is_whole ? length : 0);
      if (is_whole && (is_pruned || has_several || !optimizer.pruning.is_on()))
        elements_.add(
            parameter.role, is_of_expert, length,
            is_pruned ? length
                      : reserved_length(step, parameter.role, parameter.placement, optimizer.gradient_wire));
      if (!is_whole) sharded[is_of_expert ? 1 : 0].push_back(step.block(parameter.placement).num_stored);
    }
    for (std::size_t section = 0; section < sharded.size(); ++section)
      shards_[section] =
          ShardParts(std::move(sharded[section]), step.shape().size(axes_of(step, section)),
                     step.scalar_bytes(1), {optimizer.zero_stage, num_accumulated, bucket_bytes});
    add_updated(step, parameters);
  }

  /// Of the gradients that are summed whole.
  [[nodiscard]] SummedElements const& elements() const { return elements_; }
  /// The trained parameters that this rank updates, and the number of elements of each in this rank's part of its norm.
  [[nodiscard]] UpdatedParameters const& updated() const { return updated_; }
  [[nodiscard]] std::vector<std::int64_t> const& normed() const { return normed_; }
  /// Batch axes over which norms are summed.
  [[nodiscard]] pmm::AxisSet norm_axes(pmm::StepPlan const& step) const {
    return shards_gradients_ ? pmm::batch_axes(step.shape()) : pmm::AxisSet();
  }
  /// Calls work(axes, parts) for the sharded weights, and for those of experts.
  template<class Work>
  void for_each_shards(pmm::StepPlan const& step, Work const& work) const {
    for (std::size_t section = 0; section < shards_.size(); ++section)
      work(axes_of(step, section), shards_[section]);
  }

 private:
  [[nodiscard]] static pmm::AxisSet axes_of(pmm::StepPlan const& step, std::size_t section) {
    return summed_axes(step.shape(), section == 1);
  }
  void add_updated(pmm::StepPlan const& step, std::vector<PlannedTransformerParameter> const& parameters) {
    std::array<std::size_t, 2> next{}; // sharded matrix of each section
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      auto const& parameter = parameters[p];
      auto const is_of_expert = parameter.of_expert.has_value();
      if (parameter.role == ParameterRole::statistic) continue;
      if (shards_gradients_ &&
          is_sharded(step.shape(), parameter.role, parameter.placement, parameter.is_frozen, is_of_expert)) {
        auto const section = is_of_expert ? std::size_t{1} : std::size_t{0};
        auto const own = rank_within(step.shape(), step.coordinates(), axes_of(step, section));
        updated_.lengths.push_back(shards_[section].part(next[section]++, own).size());
        normed_.push_back(parameter.is_copy ? 0 : updated_.lengths.back());
        continue;
      }
      if (is_preconditioned(parameter.role) && !is_of_expert)
        updated_.matrices.push_back(tiled_matrix(step, updated_.lengths.size(), parameter.placement));
      updated_.lengths.push_back(whole_[p]);
      auto const is_first = step.coordinates().data == 0 && step.coordinates().context == 0;
      auto const counts = !parameter.is_copy && (!shards_gradients_ || is_first);
      auto const num_normed = normed_length_of(step, parameter.role, parameter.placement, is_of_expert);
      normed_.push_back(counts ? std::min(num_normed, whole_[p]) : 0);
    }
  }

  bool shards_gradients_;
  SummedElements elements_;
  std::vector<std::int64_t> whole_, normed_;
  UpdatedParameters updated_;
  std::array<ShardParts, 2> shards_;
};

} // namespace

TransformerPlan plan_for_memory(TransformerPlan plan, pmm::GridShape const& shape) {
  plan.experts = plan_for_memory(std::move(plan.experts), shape);
  return plan;
}

void plan_language_model_arrays(pmm::StepPlan& step, TransformerPlan const& plan,
                                SequenceSettings const& sequences, OptimizerSettings const& optimizer,
                                std::int64_t bucket_bytes) {
  auto const parameters = moving_of(parameters_of(step.shape(), step.coordinates(), plan));
  SummedGradients const sums(step, parameters, optimizer, sequences.num_accumulated, bucket_bytes,
                             optimizer.pruning.num_steps > 0);
  auto training = plan;
  training.settings.shares_gradients = optimizer.pruning.is_on();
  plan_transformer_arrays(step, training);
  pmm::plan_loss_arrays(step, plan.logits, pmm::LossKind::softmax);
  plan_sequence_rows_arrays(step, plan.sequences.size() * plan.sequence, sequences.num_accumulated);
  sums.for_each_shards(step, [&](pmm::AxisSet, ShardParts const& parts) { plan_shard_arrays(step, parts); });
  plan_update_arrays(step, optimizer, sums.updated());
  plan_gradient_sum_array(step, sums.elements(), sequences.num_accumulated);
}

namespace {

void plan_passes(pmm::StepPlan& step, TransformerPlan const& plan, SummedGradients const& sums,
                 std::int64_t num_passes) {
  auto const& stage = plan.stage;
  for (auto const& action : schedule_of(stage, num_passes)) {
    if (action.kind == PassAction::Kind::forward) {
      plan_transformer_forward(step, plan);
      if (stage.has_head()) pmm::plan_loss(step, plan.logits, pmm::LossKind::softmax, true);
      continue;
    }
    if (action.kind == PassAction::Kind::input_backward || !stage.splits_backward)
      plan_transformer_backward(step, plan, action.k);
    if (action.kind == PassAction::Kind::input_backward) continue;
    if (stage.splits_backward) plan_transformer_weight_backward(step, plan, action.k, num_passes);
    plan_add_gradients(step, sums.elements(), action.k, num_passes);
    sums.for_each_shards(step, [&](pmm::AxisSet axes, ShardParts const& parts) {
      plan_add_to_shards(step, axes, parts, action.k);
    });
  }
}

} // namespace

void plan_language_model_passes(pmm::StepPlan& step, TransformerPlan const& plan,
                                SequenceSettings const& sequences, OptimizerSettings const& optimizer) {
  auto const parameters = moving_of(parameters_of(step.shape(), step.coordinates(), plan));
  plan_passes(step, plan, SummedGradients(step, parameters, optimizer, sequences.num_accumulated),
              sequences.num_accumulated);
}

void plan_language_model_step(pmm::StepPlan& step, TransformerPlan const& plan,
                              SequenceSettings const& sequences, OptimizerSettings const& optimizer,
                              std::int64_t bucket_bytes) {
  auto const parameters = moving_of(parameters_of(step.shape(), step.coordinates(), plan));
  SummedGradients const sums(step, parameters, optimizer, sequences.num_accumulated, bucket_bytes);
  plan_passes(step, plan, sums, sequences.num_accumulated);
  constexpr std::int64_t loss_and_count = 2;
  for (auto const axes : {pmm::batch_axes(step.shape()), pmm::AxisSet{pmm::Axis::pipe}})
    step.add_call(runtime::Operation::all_reduce, axes, loss_and_count * std::int64_t{sizeof(double)});
  sums.for_each_shards(
      step, [&](pmm::AxisSet axes, ShardParts const& parts) { plan_finish_shards(step, axes, parts); });
  plan_gradient_sum(step, sums.elements(), sequences.num_accumulated, bucket_bytes);
  plan_sum_over_ends(step, plan);
  std::vector<std::int64_t> statistics;
  for (auto const& parameter : parameters)
    if (parameter.role == ParameterRole::statistic)
      statistics.push_back(length_of(step.shape(), step.coordinates(), parameter));
  plan_update(step, optimizer, sums.updated(), sums.normed(), statistics, sums.norm_axes(step));
  sums.for_each_shards(
      step, [&](pmm::AxisSet axes, ShardParts const& parts) { plan_gather_shards(step, axes, parts); });
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
          .products = product_library_bytes<T>(work) + rounded_operand_bytes(work, plan.settings.math)};
}

template<class T>
MemoryEstimate estimate_memory(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                               SequenceSettings const& sequences, OptimizerSettings const& optimizer) {
  auto estimate = estimate_memory<T>(grid.shape(), grid.coordinates(), plan, sequences, optimizer);
  pmm::StepPlan const step(grid.shape(), grid.coordinates(), sizeof(T));
  auto const parameters = moving_of(parameters_of(grid.shape(), grid.coordinates(), plan));
  SummedGradients const sums(step, parameters, optimizer, sequences.num_accumulated);
  estimate.messages += bytes_of_sums(grid, step, sums.elements());
  if (pmm::runs_on_host && can_start_early(grid))
    sums.for_each_shards(step, [&](pmm::AxisSet, ShardParts const& parts) {
      estimate.messages += step.scalar_bytes(parts.num_owners() * parts.open_length());
    });
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
