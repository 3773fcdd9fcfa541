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
  static_cast<void>(weight_gradient.reserve(plan.weight_gradient));
  static_cast<void>(comp_gradient.reserve(plan.comp_gradient));
}

namespace {

template<class T>
RelationSteps steps_of(pmm::ProcessGrid const& grid, NetworkLayerPlan const& layer,
                       RelationOperand<T> const& operand, runtime::Wire wire) {
  return {grid.shape(),
          grid.coordinates(),
          layer,
          operand.sizes,
          {operand.block->num_pairs(), operand.block->num_entries()},
          wire};
}

} // namespace

template<class T>
RelationScratchPlan relation_scratch_of(pmm::ProcessGrid const& grid, NetworkPlan const& plan,
                                        std::vector<RelationOperand<T>> const& blocks, runtime::Wire wire) {
  RelationScratchPlan scratch;
  for (std::size_t l = 0; l < blocks.size(); ++l)
    if (plan.layers[l].relations)
      scratch.add(steps_of(grid, plan.layers[l], blocks[l], wire), needs_input_gradient(plan, l));
  return scratch;
}

template<class T>
RelationAggregation<T>::RelationAggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& layer,
                                            runtime::Wire wire, RelationOperand<T> operand,
                                            NetworkLayerParameters<T> parameters, bool needs_input_gradient,
                                            std::shared_ptr<pmm::Workspace<T>> const& workspace,
                                            RelationScratch<T>& scratch, RelationLayerMemory<T>& memory)
    : grid_(grid),
      s_(steps_of(grid, layer, operand, wire)),
      block_(std::move(operand.block)),
      parameters_(std::move(parameters)),
      needs_input_gradient_(needs_input_gradient),
      input_(scratch.input.reserve(0)),
      result_(scratch.result.reserve(0)),
      parts_(scratch.parts.reserve(0)),
      in_part_(scratch.in_part.reserve(0)),
      gradient_(scratch.gradient.reserve(0)),
      weight_gradient_(scratch.weight_gradient.reserve(0)),
      comp_gradient_(scratch.comp_gradient.reserve(0)) {
  auto const lengths = memory_of(s_);
  memory_ = {memory.means.reserve(lengths.means), scratch.products.reserve(0),
             scratch.means_gradient.reserve(0)};
  weight_memory_ = memory.weight.reserve(lengths.weight);
  comp_memory_ = memory.comp.reserve(lengths.comp);
  expanded_memory_ = memory.expanded.reserve(lengths.expanded);
  if (!s_.owners) return;
  inputs_.emplace(grid, s_.owners->inputs, workspace);
  results_.emplace(grid, s_.owners->results, workspace);
}

template<class T>
Vector<T> RelationAggregation<T>::gathered(DefaultExec const& exec, pmm::DistMatrix<T> const& shard,
                                           Vector<T> const& memory) const {
  if (!s_.gathers_weights) return shard.storage();
  auto const length = shard.block().num_padded * grid_.size(pmm::group_axes);
  auto const whole = part_of(memory, 0, length);
  runtime::all_gather(exec, grid_.group(), part_of(shard.storage(), 0, shard.block().num_padded), whole);
  return whole;
}

template<class T>
void RelationAggregation<T>::gather_weights(DefaultExec const& exec) {
  auto const& weights = s_.relations.weights;
  weight_ = gathered(exec, parameters_.weight, weight_memory_);
  if (weights.num_bases > 0) comp_ = gathered(exec, parameters_.relations->comp, comp_memory_);
  expanded_ = weights.is_full() ? weight_ : expanded_memory_;
  if (!weights.is_full())
    pmm::expand_weights(exec, grid_.world().instruments(), weights, weight_, comp_, expanded_);
}

template<class T>
void RelationAggregation<T>::forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                                     pmm::DistMatrix<T> const& to) {
  auto& instruments = grid_.world().instruments();
  gather_weights(exec);
  auto const f = inputs_ ? inputs_->bring(exec, from.storage(), input_) : from.storage();
  auto const own = s_.copies_result() ? in_part_ : to.storage();
  auto const p = s_.num_parts > 1 ? result_ : own;
  pmm::relation_product(exec, instruments, *block_, s_.relations.weights, s_.sizes.inputs, f, expanded_,
                        memory_, p);
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
void RelationAggregation<T>::sum_gradient(DefaultExec const& exec, Vector<T> const& partial,
                                          pmm::DistMatrix<T> const& shard) const {
  if (!s_.gathers_weights) return;
  auto const count = shard.block().num_padded;
  auto const& [rows, columns] = shard.extents();
  auto const padding = count * grid_.size(pmm::group_axes) - rows * columns;
  if (padding > 0) Kokkos::deep_copy(exec, part_of(partial, rows * columns, padding), T{0});
  runtime::reduce_scatter(exec, grid_.group(), part_of(partial, 0, count * grid_.size(pmm::group_axes)),
                          part_of(shard.storage(), 0, count));
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
  auto const weight_gradient = s_.gathers_weights ? part_of(weight_gradient_, 0, s_.num_weights)
                                                  : parameters_.weight_gradient.storage();
  auto const expanded = weights.expanded();
  auto const gradient =
      weights.is_full() ? weight_gradient : part_of(gradient_, 0, expanded.rows * expanded.columns);
  auto const df = !needs_input_gradient_ ? Vector<T>()
                  : s_.copies_input()    ? part_of(input_, 0, s_.sizes.num_inputs())
                                         : part_of(to.storage(), 0, s_.sizes.num_inputs());
  pmm::relation_product_backward(exec, instruments, *block_, weights, s_.sizes.inputs, dp, expanded_, memory_,
                                 gradient, df);
  if (needs_input_gradient_) {
    if (inputs_)
      inputs_->bring_back(exec, s_.copies_input() ? input_ : to.storage(), to.storage());
    else if (grid_.size(s_.over_inputs) > 1 && s_.sizes.num_inputs() > 0)
      runtime::all_reduce(exec, grid_.over(s_.over_inputs), df, runtime::Reduction::sum, s_.wire);
  }
  auto const& relations = parameters_.relations;
  auto const comp_gradient = weights.num_bases == 0 ? Vector<T>()
                             : s_.gathers_weights   ? part_of(comp_gradient_, 0, s_.num_comp)
                                                    : relations->comp_gradient.storage();
  if (!weights.is_full())
    pmm::contract_gradient(exec, instruments, weights, gradient, weight_, comp_, weight_gradient,
                           comp_gradient);
  sum_gradient(exec, weight_gradient, parameters_.weight_gradient);
  if (weights.num_bases > 0) sum_gradient(exec, comp_gradient, relations->comp_gradient);
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
