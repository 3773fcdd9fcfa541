// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/pruning/pruned_network.hpp"

#include "models/gnn/layers/jump.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "models/gnn/plan/relation_step.hpp"
#include "models/training/parameter_update.hpp"
#include "models/training/vertex_loss.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

void plan_kept_block(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                     NetworkLayerPlan const& layer, NetworkSettings const& settings) {
  auto const& kept = layer.owners->kept.value();
  auto const& cells = kept.cells;
  if (layer.relations && layer.relations->attention) {
    if (layer.relations->drops_coefficients) pmm::plan_relation_ids(step, kept.relation_edges);
    return plan_attention_operand(
        step, relation_attention_steps_of(step, layer, NetworkEpochTraits(), runtime::Wire::native));
  }
  if (layer.relations)
    return pmm::plan_relation_block(step, cells.num_rows(), cells.num_columns(), kept.num_pairs,
                                    kept.num_self_pairs, kept.num_nonzeros);
  if (layer.reads_edges()) {
    plan_made_adjacency(step, without_transpose(facts), cells, kept.num_nonzeros, pmm::Flow::forward);
    return plan_edges(step, edge_counts_of(layer, cells, kept.num_nonzeros), needs_edge_ids(settings),
                      plan.drops_edges);
  }
  plan_made_adjacency(step, facts, cells, kept.num_nonzeros, pmm::Flow::transpose);
  if (!plan.drops_edges) return;
  plan_ids(step, cells.num_rows(), cells.num_columns());
  for (int way = 0; way < 2; ++way) // the block and its transpose
    pmm::plan_dropped_values(step, kept.num_nonzeros);
}

/// Lists the arrays of make_pruned_operands(), except the features and the block of the whole graph.
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
  auto has_weights = false; // of the current block
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    if (auto const& kept = layer.owners->kept) {
      if (!kept->is_shared) plan_kept_block(step, facts, plan, layer, settings);
      has_weights = has_weights && kept->is_shared;
      if (!has_weights && layer.multiplies_adjacency() &&
          layer.keeps_weights(aggregated_columns(step.shape(), step.coordinates(), layer))) {
        has_weights = true;
        for (auto const products : {AdjacencyProducts::direct, AdjacencyProducts::adjoint})
          if (scales_columns(facts, products)) pmm::plan_weights(step, kept->num_nonzeros);
      }
    }
    if (has_output_keys(plan, settings, l)) plan_block_keys(step, layer.output);
    plan_residual_arrays(step, layer, traits);
    plan_self_path_arrays(step, layer, traits);
  }
  plan_teleport_path_arrays(step, plan, traits);
  plan_jump_path_arrays(step, plan, traits);
}

/// Lists the arrays of a training without a network on all rows.
void plan_without_evaluation(pmm::StepPlan& step, graph::StoreFacts const& facts, PrunedPlans const& plans,
                             NetworkSettings const& settings, OptimizerSettings const& optimizer) {
  auto const& plan = plans.whole;
  plan_vertex_loss_arrays(step, facts, plan.logits());
  auto const parameters = parameters_of(plan, settings);
  plan_parameter_arrays(step, parameters);
  pmm::StepPlan features(step.shape(), step.coordinates(), step.scalar_bytes(1));
  plan_input_features(features, facts, plan, settings.feature_norm,
                      plans.whole_traits.num_feature_nonzeros(plan),
                      lifetime_of_features(step, plan, settings, plans.whole_traits, false));
  for (auto const& array : features.arrays()) // freed unless all rows are kept
    step.add_array(array.label, array.bytes,
                   plans.pruned.features().own_rows ? pmm::Lifetime::operation : array.lifetime);
  step.end_operation();
  auto const is_whole = [](NetworkLayerPlan const& layer) {
    return layer.aggregates() && !layer.owners->kept;
  };
  if (std::ranges::any_of(plans.pruned.layers, is_whole))
    plan_whole_blocks(step, facts, plan, settings, plans.whole_traits);
  plan_update_arrays(step, optimizer, updated_lengths_of(step, parameters).trained);
}

} // namespace

void plan_pruned_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, PrunedPlans const& plans,
                        NetworkSettings const& settings, OptimizerSettings const& optimizer, bool evaluates) {
  if (evaluates)
    plan_full_graph_arrays(step, facts, plans.whole, settings, plans.whole_traits, optimizer, false);
  else
    plan_without_evaluation(step, facts, plans, settings, optimizer);
  // Only the targets: the loss's scratch was planned above, for all rows.
  plan_target_arrays(step, facts, plans.pruned.logits());
  plan_pruned_operands(step, facts, plans.pruned, settings, plans.pruned_traits);
  plan_network_arrays(step, plans.pruned, settings, plans.pruned_traits.num_feature_nonzeros(plans.pruned),
                      plans.whole_traits.num_nonzeros(plans.whole.layers.front().adjacency),
                      plans.whole_traits.num_relation_edges(plans.whole.layers.front().adjacency));
  plan_relation_arrays(step, plans.pruned, plans.pruned_traits, settings.wire);
}

NetworkEpochTraits pruned_traits_of(NetworkEpochTraits traits, PrunedRows const& rows) {
  if (!rows.needs_whole_block()) traits.dropped.clear();
  return traits;
}

template<class T>
MemoryEstimate estimate_pruned_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                                      NetworkPlan const& plan, NetworkSettings const& settings,
                                      OptimizerSettings const& optimizer, PrunedRows const& rows,
                                      bool evaluates, MemoryEstimate const& of_all_rows) {
  auto const& shape = grid.shape();
  auto const pruned = pruned_plan(grid, plan, rows);
  auto const traits = traits_of(facts, shape, grid.coordinates(), plan, settings);
  auto pruned_traits = pruned_traits_of(traits, rows);
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

template<class T>
PrunedNetwork<T>::PrunedNetwork(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                NetworkSettings const& model_settings, TrainSettings const& settings,
                                PrunedRows const& rows)
    : grid_(grid),
      store_(store),
      model_settings_(model_settings),
      settings_(settings),
      plan_(plan_network(store, model_settings)),
      parameters_(std::make_shared<NetworkParameters<T>>(grid, plan_, model_settings)),
      whole_loss_(make_vertex_loss<T>(grid, store, plan_.logits(), settings.loss)),
      pruned_loss_(whole_loss_) {
  auto const evaluates = settings.eval_every > 0;
  std::optional<BlockOfLayers<T>> whole_block;
  if (evaluates || rows.needs_whole_block())
    whole_block = make_whole_block<T>(grid, store, plan_, model_settings, rows.block);
  auto features = read_input_features<T>(grid, store, plan_.stored_features(), model_settings);
  if (model_settings.trains_features) {
    parameters_->add_features(features.dense, features.ids, model_settings);
    trained_features_ = features;
  }
  update_ = std::make_shared<ParameterUpdate<T>>(grid, parameters_->list(), settings);

  auto operands = make_pruned_operands(grid, store, plan_, model_settings, rows, features, whole_block);
  pruned_loss_.rebind(operands.plan.logits());
  pruned_loss_.set_targets(pruned_targets(read_vertex_targets(grid, store, plan_.logits()), rows));
  pruned_ = std::make_unique<TrainedNetwork<T>>(grid, model_settings, parameters_, std::move(operands),
                                                pruned_loss_, settings, update_);
  if (evaluates) make_whole(std::move(whole_block), std::move(features));
}

template<class T>
void PrunedNetwork<T>::make_whole(std::optional<BlockOfLayers<T>> block, InputFeatures<T> features) {
  auto operands =
      block ? make_full_graph_operands<T>(grid_, store_, plan_, model_settings_, std::move(features),
                                          std::move(block->adjacency), std::move(block->dropped))
            : make_full_graph_operands<T>(grid_, store_, plan_, model_settings_, std::move(features),
                                          std::nullopt);
  whole_ = std::make_unique<TrainedNetwork<T>>(grid_, model_settings_, parameters_, std::move(operands),
                                               whole_loss_, settings_, update_);
  if (settings_.finds_roc_auc)
    whole_->trainer.judge_also_by(judge_by_areas<T>(grid_, store_, plan_.logits()));
}

template<class T>
Scores PrunedNetwork<T>::evaluate() {
  if (!whole_)
    make_whole(std::nullopt,
               model_settings_.trains_features
                   ? trained_features_
                   : read_input_features<T>(grid_, store_, plan_.stored_features(), model_settings_));
  return whole_->trainer.evaluate();
}

template<class T>
TrainResult PrunedNetwork<T>::run(std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                                  TrainProgress const& start, StopRequest const& should_stop) {
  EpochWork work;
  work.train = [this](TrainProgress& progress, StopRequest const& stop) {
    return pruned_->trainer.train_epoch(progress, stop);
  };
  work.evaluate = [this] { return evaluate(); };
  work.dead_layers = [this] { return whole_->trainer.dead_layers(); };
  work.require_bounded_parameters = [this] { update_->require_bounded_parameters({}); };
  work.set_rate_reduction = [this](double reduction) { update_->set_rate_reduction(reduction); };
  return run_epochs(grid_, settings_, work, on_epoch, start, should_stop);
}

template class PrunedNetwork<float>;
template class PrunedNetwork<double>;

} // namespace orthant::models
