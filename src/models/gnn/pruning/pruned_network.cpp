// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/pruning/pruned_network.hpp"

#include "models/gnn/plan/network_parameters.hpp"
#include "models/parameters/device_copy.hpp"
#include "models/training/parameter_update.hpp"
#include "models/training/vertex_loss.hpp"
#include "pmm/aggregate/row_lists.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

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

/// Lists the targets of the kept rows. The scratch of the loss is shared with the loss of all rows.
void plan_pruned_targets(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::Placement const& logits) {
  auto const block = step.block(logits);
  auto const num_rows = block.stored_rows.size();
  step.add_array("orthant::models::splits", num_rows);
  if (loss_kind_of(facts) == pmm::LossKind::softmax)
    step.add_array("orthant::models::classes", num_rows * std::int64_t{sizeof(std::int32_t)});
  else
    step.add_array("orthant::models::label_indicator", num_rows * block.columns.size());
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

namespace {

using Places = std::vector<runtime::LocalColumn>;

/// Selects elements of `numbers`, `width` at a time.
template<class Number>
runtime::Vector<Number> picked(char const* label, runtime::Vector<Number> const& numbers,
                               Places const& places, std::size_t width = 1) {
  HostNumbers<Number> const all(numbers);
  std::vector<Number> kept;
  kept.reserve(places.size() * width);
  for (auto const place : places) {
    auto const row = all.values().subspan(static_cast<std::size_t>(place) * width, width);
    kept.insert(kept.end(), row.begin(), row.end());
  }
  return to_vector<Number>(label, kept);
}

/// Selects rows of sparse features and makes their transpose.
template<class T>
pmm::DistSparse<T> picked_rows(pmm::ProcessGrid const& grid, pmm::DistSparse<T> const& features,
                               pmm::Placement const& placement, Places const& rows) {
  auto const& whole = features.forward().block();
  HostNumbers<runtime::Offset> const offsets(whole.csr.row_offsets);
  HostNumbers<runtime::LocalColumn> const columns(whole.csr.columns);
  HostNumbers<T> const values(whole.csr.values);
  std::vector<runtime::Offset> kept_offsets{0};
  Places kept_columns;
  std::vector<T> kept_values;
  for (auto const row : rows) {
    auto const begin = static_cast<std::size_t>(offsets.values()[static_cast<std::size_t>(row)]);
    auto const end = static_cast<std::size_t>(offsets.values()[static_cast<std::size_t>(row) + 1]);
    auto const append = [&](auto const& from, auto& to) {
      auto const part = from.values().subspan(begin, end - begin);
      to.insert(to.end(), part.begin(), part.end());
    };
    append(columns, kept_columns);
    if (!values.values().empty()) append(values, kept_values);
    kept_offsets.push_back(std::ssize(kept_columns));
  }
  pmm::SparseBlock<T> block;
  block.csr = {std::ssize(rows), whole.csr.num_columns,
               to_vector<runtime::Offset>("orthant::models::csr/row_offsets", kept_offsets),
               to_vector<runtime::LocalColumn>("orthant::models::csr/columns", kept_columns),
               to_vector<T>("orthant::models::csr/values", kept_values)};
  if (whole.row_scale.extent(0) > 0)
    block.row_scale = picked("orthant::models::feature_scale", whole.row_scale, rows);
  return pmm::DistSparse<T>(grid, placement, block, pmm::Adjoint::kept);
}

template<class T>
InputFeatures<T> picked_features(pmm::ProcessGrid const& grid, InputFeatures<T> const& features,
                                 pmm::Placement const& placement, Places const& rows) {
  InputFeatures<T> kept;
  kept.is_sparse = features.is_sparse;
  kept.keys = {picked("orthant::models::original_ids", features.keys.original_ids, rows),
               features.keys.first_column};
  if (features.is_sparse) {
    kept.sparse = picked_rows(grid, features.sparse, placement, rows);
    return kept;
  }
  kept.dense = pmm::DistMatrix<T>(grid, placement, "orthant::models::features");
  auto const list = to_vector<runtime::LocalColumn>("orthant::models::kept_rows", rows);
  runtime::DefaultExec const exec;
  pmm::pick_rows(exec, grid.passes(), features.dense.storage(), list, placement.extents.columns,
                 kept.dense.storage());
  runtime::compat::fence(exec, "orthant::models::picked_features/the list is let go");
  return kept;
}

} // namespace

template<class T>
NetworkOperands<T> make_pruned_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                        NetworkPlan const& plan, NetworkSettings const& settings,
                                        PrunedRows const& rows, InputFeatures<T> const& features,
                                        std::optional<OwnedAdjacency<T>> const& whole) {
  NetworkOperands<T> operands;
  operands.plan = pruned_plan(grid, plan, rows);
  auto const ids = read_block_keys(grid, store, plan.logits()).original_ids;
  operands.features = rows.is_whole(0)
                          ? features
                          : picked_features(grid, features, operands.plan.features(), rows.kept[0].own);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto& layer = operands.plan.layers[l];
    auto const& outputs = rows.kept[l + 1].own;
    if (rows.has_whole_block(l)) {
      ORTHANT_REQUIRE(whole, "layer ", l, " needs the block of the whole graph");
      operands.adjacency.push_back(*whole);
    } else {
      auto made =
          make_owned_adjacency<T>(grid, layer.owners->roles, kept_block(grid, layer.owners->roles, rows, l),
                                  settings.gather, layer.owners->backward);
      layer.owners->kept->needed = made.needed->counts();
      operands.adjacency.push_back(std::move(made));
    }
    operands.output_keys.push_back(has_output_keys(plan, settings, l)
                                       ? BlockKeys{picked("orthant::models::original_ids", ids, outputs), 0}
                                       : BlockKeys{});
    if (!layer.is_residual) {
      operands.residuals.emplace_back();
    } else if (rows.has_whole_block(l)) {
      operands.residuals.push_back(ResidualPath<T>::local());
    } else {
      // Positions of the output's rows among the input's rows; both ascend.
      auto const& inputs = rows.kept[l].own;
      Places places;
      for (auto const row : outputs)
        places.push_back(
            static_cast<runtime::LocalColumn>(std::ranges::lower_bound(inputs, row) - inputs.begin()));
      operands.residuals.push_back(ResidualPath<T>::of_kept_rows(
          std::make_shared<pmm::RowSelection>(pmm::make_row_selection(places, std::ssize(inputs)))));
    }
  }
  return operands;
}

pmm::RowTargets pruned_targets(pmm::RowTargets const& targets, PrunedRows const& rows) {
  auto const& places = rows.kept.back().own;
  pmm::RowTargets kept;
  kept.groups = picked("orthant::models::splits", targets.groups, places);
  if (targets.classes.extent(0) > 0)
    kept.classes = picked("orthant::models::classes", targets.classes, places);
  auto const num_classes = targets.indicator.extent(1);
  if (num_classes == 0) return kept;
  using Flat = runtime::Vector<std::int8_t>;
  auto const label = "orthant::models::label_indicator";
  kept.indicator = runtime::Matrix<std::int8_t>(std::string(label), places.size(), num_classes);
  Kokkos::deep_copy(
      Flat(kept.indicator.data(), kept.indicator.size()),
      picked(label, Flat(targets.indicator.data(), targets.indicator.size()), places, num_classes));
  return kept;
}

template NetworkOperands<float> make_pruned_operands(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                     NetworkPlan const&, NetworkSettings const&,
                                                     PrunedRows const&, InputFeatures<float> const&,
                                                     std::optional<OwnedAdjacency<float>> const&);
template NetworkOperands<double> make_pruned_operands(pmm::ProcessGrid const&, graph::GraphStore const&,
                                                      NetworkPlan const&, NetworkSettings const&,
                                                      PrunedRows const&, InputFeatures<double> const&,
                                                      std::optional<OwnedAdjacency<double>> const&);

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
  auto needs_whole_block = evaluates;
  for (std::size_t l = 0; l < plan_.layers.size(); ++l)
    needs_whole_block = needs_whole_block || rows.has_whole_block(l);
  std::optional<OwnedAdjacency<T>> whole_block;
  if (needs_whole_block)
    whole_block = make_owned_adjacency<T>(grid, plan_.layers.front().owners->roles, rows.block,
                                          model_settings.gather, backward_flow(store.facts()));
  auto features = read_input_features<T>(grid, store, plan_.stored_features(), model_settings.feature_norm);
  if (model_settings.trains_features) {
    parameters_->add_features(features.dense);
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
void PrunedNetwork<T>::make_whole(std::optional<OwnedAdjacency<T>> block, InputFeatures<T> features) {
  auto operands = make_full_graph_operands<T>(grid_, store_, plan_, model_settings_, std::move(features),
                                              std::move(block));
  whole_ = std::make_unique<TrainedNetwork<T>>(grid_, model_settings_, parameters_, std::move(operands),
                                               whole_loss_, settings_, update_);
  if (settings_.finds_roc_auc)
    whole_->trainer.judge_also_by(judge_by_areas<T>(grid_, store_, plan_.logits()));
}

template<class T>
Scores PrunedNetwork<T>::evaluate() {
  if (!whole_)
    make_whole(std::nullopt, model_settings_.trains_features
                                 ? trained_features_
                                 : read_input_features<T>(grid_, store_, plan_.stored_features(),
                                                          model_settings_.feature_norm));
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
