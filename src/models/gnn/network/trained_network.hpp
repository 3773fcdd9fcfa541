#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A GCN on operands that never change, and its training: of the whole graph, or of the rows that are kept of
// it. Several of them may share parameters and the optimiser's state, and take turns.

#include "models/gnn/network/graph_network.hpp"
#include "models/training/trainer.hpp"

#include <memory>

namespace orthant::models {

template<class T>
struct TrainedNetwork {
  /// All references must outlive it. Not collective.
  TrainedNetwork(pmm::ProcessGrid const& grid, NetworkSettings const& model_settings,
                 std::shared_ptr<NetworkParameters<T>> parameters, NetworkOperands<T> operands,
                 pmm::RowLoss<T>& loss, TrainSettings const& settings,
                 std::shared_ptr<ParameterUpdate<T>> update)
      : network(grid, model_settings, std::move(parameters)),
        trainer(grid, network, loss, settings, std::move(update)) {
    network.rebind(std::move(operands));
  }
  GraphNetwork<T> network;
  Trainer<T> trainer;
};

} // namespace orthant::models
