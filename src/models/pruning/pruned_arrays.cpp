// SPDX-License-Identifier: Apache-2.0
#include "models/pruning/pruned_arrays.hpp"

#include "models/core/vertex_loss.hpp"
#include "models/plan/gcn_parameters.hpp"
#include "models/training/parameter_update.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

/// Lists what make_pruned_operands() makes beside the features and the block of the whole graph.
void plan_pruned_operands(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                          NetworkSettings const& settings, NetworkEpochTraits const& traits) {
  if (auto const& features = plan.features(); features.own_rows) {
    plan_block_keys(step, features);
    if (auto const num_nonzeros = traits.num_feature_nonzeros(plan))
      plan_sparse_features(step, features, *num_nonzeros, facts.features_have_values, settings.feature_norm);
    else
      plan_matrix(step, features, "orthant::models::features",
                  lifetime_of_features(step, plan, settings, traits, false));
  }
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    if (auto const& kept = layer.owners->kept) {
      plan_made_adjacency(step, facts, kept->cells, kept->num_nonzeros, layer.owners->backward);
      if (layer.keeps_weights(aggregated_columns(step.shape(), step.coordinates(), layer)))
        for (auto const products : {AdjacencyProducts::direct, AdjacencyProducts::adjoint})
          if (scales_columns(facts, products)) pmm::plan_weights(step, kept->num_nonzeros);
    }
    if (has_output_keys(plan, settings, l)) plan_block_keys(step, layer.output);
    plan_residual_arrays(step, layer, traits);
  }
}

/// The rows that are kept, without the scratch of the loss, which is that of all rows.
void plan_pruned_targets(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::Placement const& logits) {
  auto const block = step.block(logits);
  auto const num_rows = block.stored_rows.size();
  step.add_array("orthant::models::splits", num_rows);
  if (loss_kind_of(facts) == pmm::LossKind::softmax)
    step.add_array("orthant::models::classes", num_rows * std::int64_t{sizeof(std::int32_t)});
  else
    step.add_array("orthant::models::label_indicator", num_rows * block.columns.size());
}

/// What training has without a network on all rows.
void plan_without_evaluation(pmm::StepPlan& step, graph::StoreFacts const& facts, PrunedPlans const& plans,
                             NetworkSettings const& settings, OptimizerSettings const& optimizer) {
  auto const& plan = plans.whole;
  plan_vertex_loss_arrays(step, facts, plan.logits());
  auto const parameters = parameters_of(plan, settings);
  plan_parameter_arrays(step, parameters);
  pmm::StepPlan features(step.shape(), step.coordinates(), step.scalar_bytes(1));
  plan_input_features(features, facts, plan.features(), settings.feature_norm,
                      plans.whole_traits.num_feature_nonzeros(plan),
                      lifetime_of_features(step, plan, settings, plans.whole_traits, false));
  for (auto const& array : features.arrays()) // let go unless all of them are kept
    step.add_array(array.label, array.bytes,
                   plans.pruned.features().own_rows ? pmm::Lifetime::operation : array.lifetime);
  step.end_operation();
  auto const is_whole = [](NetworkLayerPlan const& layer) { return !layer.owners->kept; };
  if (std::ranges::any_of(plans.pruned.layers, is_whole)) {
    plan_adjacency(step, facts, plan, plans.whole_traits);
    plan_adjacency_products(step, facts, plan, plans.whole_traits);
  }
  plan_update_arrays(step, optimizer, updated_lengths_of(step, parameters).trained);
}

} // namespace

void plan_pruned_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, PrunedPlans const& plans,
                        NetworkSettings const& settings, OptimizerSettings const& optimizer, bool evaluates) {
  if (evaluates)
    plan_full_graph_arrays(step, facts, plans.whole, settings, plans.whole_traits, optimizer, false);
  else
    plan_without_evaluation(step, facts, plans, settings, optimizer);
  plan_pruned_targets(step, facts, plans.pruned.logits());
  plan_pruned_operands(step, facts, plans.pruned, settings, plans.pruned_traits);
  plan_network_arrays(step, plans.pruned, settings, plans.pruned_traits.num_feature_nonzeros(plans.pruned));
}

template<class T>
MemoryEstimate estimate_pruned_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                                      NetworkPlan const& plan, NetworkSettings const& settings,
                                      OptimizerSettings const& optimizer, PrunedRows const& rows,
                                      bool evaluates, MemoryEstimate const& of_all_rows) {
  auto const& shape = grid.shape();
  auto const pruned = pruned_plan(grid, plan, rows);
  auto const traits = traits_of(facts, shape, grid.coordinates(), plan, settings);
  auto pruned_traits = traits;
  pruned_traits.num_nonzeros = [&](pmm::Placement const& features) {
    return even_share(facts.num_feature_entries, shape, features.layout) * rows.kept.front().num_global /
           rows.whole.num_rows;
  };
  pmm::StepPlan step(shape, grid.coordinates(), sizeof(T));
  plan_pruned_arrays(step, facts, {plan, pruned, traits, pruned_traits}, settings, optimizer, evaluates);
  auto estimate = of_all_rows;
  estimate.arrays = bytes_held(step);
  estimate.loading = peak_bytes(step);
  return estimate;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template MemoryEstimate estimate_pruned_memory<T>(                                                         \
      pmm::ProcessGrid const&, graph::StoreFacts const&, NetworkPlan const&, NetworkSettings const&,         \
      OptimizerSettings const&, PrunedRows const&, bool, MemoryEstimate const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
