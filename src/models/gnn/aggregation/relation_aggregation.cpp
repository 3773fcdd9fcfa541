// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation/relation_aggregation.hpp"

#include "runtime/arrays/views.hpp"
#include "runtime/comm/collectives.hpp"

#include <utility>

namespace orthant::models {

using runtime::DefaultExec;
using runtime::part_of;
using runtime::Vector;

template<class T>
void RelationScratch<T>::reserve(RelationScratchPlan const& plan) {
  static_cast<void>(input.reserve(plan.input));
  static_cast<void>(products.reserve(plan.products));
  static_cast<void>(means_gradient.reserve(plan.means_gradient));
  static_cast<void>(result.reserve(plan.result));
  static_cast<void>(parts.reserve(plan.parts));
  static_cast<void>(in_part.reserve(plan.in_part));
  static_cast<void>(gradient.reserve(plan.gradient));
  for (std::size_t i = 0; i < num_relation_parts; ++i)
    static_cast<void>(gradients[i].reserve(plan.gradients[i]));
}

namespace {

template<class T>
RelationSteps steps_of(pmm::ProcessGrid const& grid, NetworkLayerPlan const& layer,
                       RelationOperand<T> const& operand, runtime::Wire wire) {
  return {grid.shape(),
          grid.coordinates(),
          layer,
          operand.sizes,
          {operand.block->num_pairs(), operand.block->num_self_pairs(), operand.block->num_root_pairs(),
           operand.block->num_entries()},
          wire};
}

} // namespace

template<class T>
RelationScratchPlan relation_scratch_of(pmm::ProcessGrid const& grid, NetworkPlan const& plan,
                                        std::vector<RelationOperand<T>> const& blocks, runtime::Wire wire) {
  RelationScratchPlan scratch;
  for (std::size_t l = 0; l < blocks.size(); ++l)
    if (plan.layers[l].relations && !plan.layers[l].relations->attention)
      scratch.add(steps_of(grid, plan.layers[l], blocks[l], wire), needs_input_gradient(plan, l));
  return scratch;
}

template<class T>
RelationAggregation<T>::RelationAggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& layer,
                                            runtime::Wire wire, RelationOperand<T> operand,
                                            NetworkLayerParameters<T> const& parameters,
                                            bool needs_input_gradient,
                                            std::shared_ptr<pmm::Workspace<T>> const& workspace,
                                            RelationScratch<T>& scratch, RelationLayerMemory<T>& memory)
    : grid_(grid),
      s_(steps_of(grid, layer, operand, wire)),
      block_(std::move(operand.block)),
      parameters_(*parameters.relations),
      needs_input_gradient_(needs_input_gradient),
      input_(scratch.input.reserve(0)),
      result_(scratch.result.reserve(0)),
      parts_(scratch.parts.reserve(0)),
      in_part_(scratch.in_part.reserve(0)),
      gradient_(scratch.gradient.reserve(0)) {
  auto const lengths = memory_of(s_);
  memory_ = {memory.means.reserve(lengths.means), scratch.products.reserve(0),
             scratch.means_gradient.reserve(0)};
  for (std::size_t i = 0; i < num_relation_parts; ++i) {
    auto const& [value, gradient] = parameters_[i];
    if (s_.lengths[i] == 0) continue;
    whole_[i] = s_.gathers_weights
                    ? part_of(memory.gathered[i].reserve(lengths.gathered[i]), 0, s_.lengths[i])
                    : value.storage();
    whole_gradients_[i] =
        s_.gathers_weights ? part_of(scratch.gradients[i].reserve(0), 0, s_.lengths[i]) : gradient.storage();
  }
  expanded_memory_ = memory.expanded.reserve(lengths.expanded);
  if (!s_.owners) return;
  inputs_.emplace(grid, s_.owners->inputs, workspace);
  results_.emplace(grid, s_.owners->results, workspace);
}

template<class T>
void RelationAggregation<T>::gather_weights(DefaultExec const& exec) {
  for (std::size_t i = 0; i < num_relation_parts && s_.gathers_weights; ++i)
    if (auto const& shard = parameters_[i].value; s_.lengths[i] > 0)
      runtime::all_gather(exec, grid_.group(), part_of(shard.storage(), 0, shard.block().num_padded),
                          whole_[i]);
  auto const& weights = s_.relations.weights;
  expanded_ = weights.is_full() ? whole_[index_of(RelationPart::weight)] : expanded_memory_;
  if (!weights.is_full())
    pmm::expand_weights(exec, grid_.world().instruments(), weights, whole_[index_of(RelationPart::weight)],
                        whole_[index_of(RelationPart::comp)], expanded_);
}

template<class T>
pmm::RelationParameters<T> RelationAggregation<T>::parameters_in_use() const {
  return {expanded_, whole_[index_of(RelationPart::roots)], whole_[index_of(RelationPart::biases)]};
}

template<class T>
void RelationAggregation<T>::forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                                     pmm::DistMatrix<T> const& to) {
  auto& instruments = grid_.world().instruments();
  gather_weights(exec);
  auto const f = inputs_ ? inputs_->bring(exec, from.storage(), input_) : from.storage();
  auto const own = s_.copies_result() ? in_part_ : to.storage();
  auto const p = s_.num_parts > 1 ? result_ : own;
  pmm::relation_product(exec, instruments, *block_, s_.relations.weights, s_.sizes.inputs, f,
                        parameters_in_use(), memory_, p);
  auto const in_part = part_of(own, 0, s_.num_in_part());
  if (s_.num_parts > 1) {
    pmm::split_columns(exec, instruments.passes, s_.sizes.rows, s_.sizes.out, s_.num_parts, p, parts_);
    runtime::reduce_scatterv(exec, grid_.over(s_.over_parts), part_of(parts_, 0, s_.sizes.num_results()),
                             in_part, s_.part_counts, runtime::Reduction::sum, s_.wire);
  }
  if (results_) return results_->bring_back(exec, own, to.storage());
  if (grid_.size(s_.over_results) > 1 && s_.num_in_part() > 0)
    runtime::all_reduce(exec, grid_.over(s_.over_results), in_part, runtime::Reduction::sum, s_.wire);
}

template<class T>
void RelationAggregation<T>::sum_gradients(DefaultExec const& exec) const {
  for (std::size_t i = 0; i < num_relation_parts && s_.gathers_weights; ++i) {
    if (s_.lengths[i] == 0) continue;
    auto const& shard = parameters_[i].gradient;
    auto const& [rows, columns] = shard.extents();
    auto const padding = s_.lengths[i] - rows * columns;
    if (padding > 0) Kokkos::deep_copy(exec, part_of(whole_gradients_[i], rows * columns, padding), T{0});
    runtime::reduce_scatter(exec, grid_.group(), whole_gradients_[i],
                            part_of(shard.storage(), 0, shard.block().num_padded));
  }
}

template<class T>
void RelationAggregation<T>::backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                                      pmm::DistMatrix<T> const& to) {
  auto& instruments = grid_.world().instruments();
  auto const& weights = s_.relations.weights;
  auto const own = results_ ? results_->bring(exec, from.storage(), in_part_) : from.storage();
  auto dp = own;
  if (s_.num_parts > 1) {
    runtime::all_gatherv(exec, grid_.over(s_.over_parts), part_of(own, 0, s_.num_in_part()),
                         part_of(parts_, 0, s_.sizes.num_results()), s_.part_counts, s_.wire);
    pmm::join_columns(exec, instruments.passes, s_.sizes.rows, s_.sizes.out, s_.num_parts, parts_, result_);
    dp = result_;
  }
  auto const expanded = weights.expanded();
  auto const& weight_gradient = whole_gradients_[index_of(RelationPart::weight)];
  auto const gradient = weights.is_full() ? part_of(weight_gradient, 0, expanded.rows * expanded.columns)
                                          : part_of(gradient_, 0, expanded.rows * expanded.columns);
  auto const df = !needs_input_gradient_ ? Vector<T>()
                  : s_.copies_input()    ? part_of(input_, 0, s_.sizes.num_inputs())
                                         : part_of(to.storage(), 0, s_.sizes.num_inputs());
  pmm::RelationParameters<T> const gradients{gradient, whole_gradients_[index_of(RelationPart::roots)],
                                             whole_gradients_[index_of(RelationPart::biases)]};
  pmm::relation_product_backward(exec, instruments, *block_, weights, s_.sizes.inputs, dp,
                                 parameters_in_use(), memory_, gradients, df);
  if (needs_input_gradient_) {
    if (inputs_)
      inputs_->bring_back(exec, s_.copies_input() ? input_ : to.storage(), to.storage());
    else if (grid_.size(s_.over_inputs) > 1 && s_.sizes.num_inputs() > 0)
      runtime::all_reduce(exec, grid_.over(s_.over_inputs), df, runtime::Reduction::sum, s_.wire);
  }
  if (!weights.is_full())
    pmm::contract_gradient(exec, instruments, weights, gradient, whole_[index_of(RelationPart::weight)],
                           whole_[index_of(RelationPart::comp)], weight_gradient,
                           whole_gradients_[index_of(RelationPart::comp)]);
  sum_gradients(exec);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template struct RelationScratch<T>;                                                                        \
  template RelationScratchPlan relation_scratch_of(pmm::ProcessGrid const&, NetworkPlan const&,              \
                                                   std::vector<RelationOperand<T>> const&, runtime::Wire);   \
  template class RelationAggregation<T>;
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
