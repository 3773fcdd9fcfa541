#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A graph network on fixed operands, with its trainer: on the whole graph, or on the rows that pruning keeps. Several of these can
// share parameters and the optimizer's state, and train in turn.

#include "models/gnn/network/graph_network.hpp"
#include "models/training/trainer.hpp"

#include <memory>

namespace orthant::models {

template<class T>
struct TrainedNetwork {
  /// All references must outlive this object. Not collective.
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
