// SPDX-License-Identifier: Apache-2.0
#include "models/pruning/pruned_gcn.hpp"

#include "models/core/roc_auc.hpp"

namespace orthant::models {

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
  auto features = read_input_features<T>(grid, store, plan_.features(), model_settings.feature_norm);
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
    make_whole(std::nullopt,
               model_settings_.trains_features
                   ? trained_features_
                   : read_input_features<T>(grid_, store_, plan_.features(), model_settings_.feature_norm));
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
