#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A GCN that trains on the whole graph in the schedule rows, and leaves out of a step what no training vertex
// depends on (pruned_rows.hpp). Loss, gradients and weights are those of a training on all rows, to rounding.
// Evaluation is a pass of a second network, on all rows and with the same parameters.

#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/network/network_operands.hpp"
#include "models/gnn/network/trained_network.hpp"
#include "models/gnn/pruning/pruned_rows.hpp"
#include "pmm/rows/row_loss.hpp"

#include <functional>
#include <memory>
#include <optional>

namespace orthant::models {

// What a GCN runs on if it keeps only the rows that training vertices depend on (pruned_rows.hpp): each layer
// has a block of its own with its transpose, and features, targets and ids are those of the rows that are
// kept. Dropout is keyed by the same ids as ever.

/// `features` are those of the whole graph, and shared if all of them are kept; `whole` is the block of the
/// layers that keep everything (Error if there are such layers and it is absent). Collective over the grid's
/// group.
template<class T>
[[nodiscard]] NetworkOperands<T>
make_pruned_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store, NetworkPlan const& plan,
                     NetworkSettings const& settings, PrunedRows const& rows,
                     InputFeatures<T> const& features, std::optional<OwnedAdjacency<T>> const& whole);

/// Those of the rows of the logits that are kept.
[[nodiscard]] pmm::RowTargets pruned_targets(pmm::RowTargets const& targets, PrunedRows const& rows);

// The arrays of a training that keeps a part of the rows, listed once it is known which, and before they are
// made; and the memory that follows from the list.

/// The plans of a network on all rows and on those that are kept, with what decides its arrays.
struct PrunedPlans {
  NetworkPlan const& whole;
  NetworkPlan const& pruned;
  NetworkEpochTraits const& whole_traits;
  NetworkEpochTraits const& pruned_traits;
};

/// Lists the arrays of a pruned training. `evaluates`: there is a network on all rows beside it.
void plan_pruned_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, PrunedPlans const& plans,
                        NetworkSettings const& settings, OptimizerSettings const& optimizer, bool evaluates);

/// For the rank of `grid` that calls, if non-zeros of the whole graph's blocks and of features fall evenly.
/// `of_all_rows`: of the same training without pruning.
template<class T>
[[nodiscard]] MemoryEstimate
estimate_pruned_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts, NetworkPlan const& plan,
                       NetworkSettings const& settings, OptimizerSettings const& optimizer,
                       PrunedRows const& rows, bool evaluates, MemoryEstimate const& of_all_rows);

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
