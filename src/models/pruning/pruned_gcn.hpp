#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A GCN that trains on the whole graph in the schedule rows, and leaves out of a step what no training vertex
// depends on (pruned_rows.hpp). Loss, gradients and weights are those of a training on all rows, to rounding.
// Evaluation is a pass of a second network, on all rows and with the same parameters.

#include "models/gnn/trained_gcn.hpp"
#include "models/pruning/pruned_operands.hpp"

#include <functional>
#include <memory>

namespace orthant::models {

template<class T>
class PrunedNetwork {
 public:
  /// Reads features and targets, makes the blocks, and draws the weights; `rows` are those of this store and
  /// these settings. The network on all rows is made if epochs are evaluated, else by the first evaluate().
  /// Grid and store must outlive it. Collective over the grid's group. Throws UserError as GraphNetwork and
  /// make_vertex_loss() do.
  PrunedNetwork(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                NetworkSettings const& model_settings, TrainSettings const& settings, PrunedRows const& rows);

  /// As Trainer::run().
  TrainResult run(std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                  TrainProgress const& start = {}, StopRequest const& should_stop = {});
  /// Loss and accuracy on all rows. Collective over the grid's group.
  [[nodiscard]] Scores evaluate();

  [[nodiscard]] std::vector<Parameter<T>>& parameters() { return parameters_->list(); }
  [[nodiscard]] std::int64_t num_parameters() const { return parameters_->num_numbers(); }
  [[nodiscard]] ParameterUpdate<T>& update() { return *update_; }
  /// On the rows that are kept.
  [[nodiscard]] Trainer<T>& trainer() { return pruned_->trainer; }

 private:
  void make_whole(std::optional<OwnedAdjacency<T>> block, InputFeatures<T> features);

  pmm::ProcessGrid const& grid_;
  graph::GraphStore const& store_;
  NetworkSettings model_settings_;
  TrainSettings settings_;
  NetworkPlan plan_; // of all rows
  std::shared_ptr<NetworkParameters<T>> parameters_;
  InputFeatures<T> trained_features_;
  pmm::RowLoss<T> whole_loss_;
  pmm::RowLoss<T> pruned_loss_; // in the same scratch
  std::shared_ptr<ParameterUpdate<T>> update_;
  std::unique_ptr<TrainedNetwork<T>> whole_; // null: nothing has been evaluated
  std::unique_ptr<TrainedNetwork<T>> pruned_;
};

extern template class PrunedNetwork<float>;
extern template class PrunedNetwork<double>;

} // namespace orthant::models
