// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/batches/mini_batch.hpp"

#include "models/training/vertex_loss.hpp"
#include "runtime/comm/together.hpp"

namespace orthant::models {
namespace {

/// Rejects settings that cannot be trained in batches, before anything is read.
void require_trainable(pmm::ProcessGrid const& grid, TrainSettings const& settings,
                       MiniBatchSettings const& batches) {
  for (auto const axis : pmm::spatial_axes)
    if (batches.batch_size < grid.size(axis))
      runtime::throw_user(
          "a batch of {} vertices for {} ranks along {}; give --batch {} or more, or another --grid",
          batches.batch_size, grid.size(axis), pmm::name_of(axis), grid.size(axis));
  if (batches.num_full_epochs > settings.num_epochs)
    runtime::throw_user("--finish-full {} of {} epochs; give at most as many as --epochs",
                        batches.num_full_epochs, settings.num_epochs);
}

/// The settings with the weights of edges that the model has.
MiniBatchSettings with_edges_for(NetworkSettings const& model, MiniBatchSettings batches) {
  batches.edges = batch_edges_for(model, batches.edges);
  return batches;
}

} // namespace

template<class T>
MiniBatchNetwork<T>::MiniBatchNetwork(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                      NetworkSettings const& model_settings, TrainSettings const& settings,
                                      MiniBatchSettings const& batch_settings)
    : grid_(grid),
      num_sampled_epochs_(settings.num_epochs - batch_settings.num_full_epochs),
      sampler_(
          (require_trainable(grid, settings, batch_settings),
           make_sampler(grid, store, with_edges_for(model_settings, batch_settings), model_settings.seed))),
      settings_(with_num_steps(settings,
                               num_sampled_epochs_ * sampler_->num_steps() + batch_settings.num_full_epochs)),
      plan_(plan_network(store, model_settings)),
      parameters_(std::make_shared<NetworkParameters<T>>(grid, plan_, model_settings)),
      full_loss_(make_vertex_loss<T>(grid, store, plan_.logits(), settings.loss)),
      batch_loss_(full_loss_),
      network_(grid, model_settings, parameters_) {
  ORTHANT_ASSERT_SAME(grid.world(), model_settings.seed);
  ORTHANT_ASSERT_SAME(grid.world(), batch_settings.batch_size);
  auto const has_full_graph = settings.eval_every > 0 || batch_settings.num_full_epochs > 0;
  auto whole = plan_;
  whole.drops_edges = plan_.drops_edges && batch_settings.num_full_epochs > 0; // not in evaluation
  auto const of_whole =
      batch_settings.num_full_epochs > 0 ? model_settings : model_settings.without_dropout();
  NetworkOperands<T> operands;
  if (has_full_graph)
    operands = make_full_graph_operands<T>(grid, store, whole, of_whole);
  else
    operands.features = read_input_features<T>(grid, store, plan_.stored_features(), model_settings);
  operands.features.may_move = false; // batches are also made from them
  auto const features = operands.features;
  if (model_settings.trains_features) parameters_->add_features(features.dense, features.ids, model_settings);
  ORTHANT_ASSERT_SAME(grid.world(), num_parameters());
  update_ = std::make_shared<ParameterUpdate<T>>(grid, parameters_->list(), settings_);
  if (has_full_graph) {
    full_ = std::make_unique<TrainedNetwork<T>>(grid, of_whole, parameters_, std::move(operands), full_loss_,
                                                settings, update_);
    if (settings.finds_roc_auc) full_->trainer.judge_also_by(judge_by_areas<T>(grid, store, plan_.logits()));
  }
  batches_ = std::make_unique<NetworkBatches<T>>(
      grid, network_, batch_loss_,
      std::make_unique<BatchMaker<T>>(grid, store, *sampler_, plan_, features,
                                      read_vertex_targets(grid, store, plan_.logits()), model_settings.gather,
                                      batch_settings.edges, batch_settings.place),
      *sampler_, batch_settings, num_sampled_epochs_, full_loss_.num_rows(pmm::loss_row_group));
  trainer_ = std::make_unique<Trainer<T>>(grid, network_, batch_loss_, *batches_, settings, update_);
}

template<class T>
double MiniBatchNetwork<T>::num_kept_neighbours() {
  return batches_->num_kept_neighbours();
}

template<class T>
Scores MiniBatchNetwork<T>::evaluate() {
  ORTHANT_REQUIRE(full_, "there is no full graph to evaluate on: eval_every is 0");
  return full_->trainer.evaluate();
}

template<class T>
TrainResult MiniBatchNetwork<T>::run(std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                                     TrainProgress const& start, StopRequest const& should_stop) {
  batches_->start_at(start.epoch, start.step);
  EpochWork work;
  work.train = [this](TrainProgress& progress, StopRequest const& stop) {
    auto& trainer = progress.epoch <= num_sampled_epochs_ ? *trainer_ : full_->trainer;
    return trainer.train_epoch(progress, stop);
  };
  work.evaluate = [this] { return evaluate(); };
  work.dead_layers = [this] { return full_->trainer.dead_layers(); };
  work.require_bounded_parameters = [this] { update_->require_bounded_parameters({}); };
  work.set_rate_reduction = [this](double reduction) { update_->set_rate_reduction(reduction); };
  return run_epochs(grid_, settings_, work, on_epoch, start, should_stop);
}

template class MiniBatchNetwork<float>;
template class MiniBatchNetwork<double>;

} // namespace orthant::models
