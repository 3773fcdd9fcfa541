#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A graph network that trains on the whole graph in the schedule `rows`, without the rows on which no training vertex depends
// (pruned_rows.hpp). Loss, gradients and weights are those of a training on all rows, up to rounding. A second network evaluates on
// all rows, with the same parameters.

#include "models/gnn/network/graph_network.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/network/network_operands.hpp"
#include "models/gnn/pruning/pruned_rows.hpp"
#include "pmm/rows/row_loss.hpp"

#include <functional>
#include <memory>
#include <optional>

namespace orthant::models {

// Operands of a network that computes only the rows on which training vertices depend (pruned_rows.hpp). Each layer has its own block with
// its transpose; features, targets and ids are those of the kept rows. Each row keeps its dropout keys, so the same elements are dropped as
// without pruning.

/// A block as layers read it and, if edges are dropped, its blocks whose values the steps fill.
template<class T>
struct BlockOfLayers {
  OwnedAdjacency<T> adjacency;
  std::vector<pmm::DroppedBlock<T>> dropped;
};
/// Makes the block of the whole graph. Collective over the grid's group.
template<class T>
[[nodiscard]] BlockOfLayers<T> make_whole_block(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                                NetworkPlan const& plan, NetworkSettings const& settings,
                                                OwnedBlock const& block);

/// `features`: of the whole graph; shared if all rows are kept. `whole`: block of the layers that keep all rows; if there are such
/// layers it must be present, otherwise throws Error. Collective over the grid's group.
template<class T>
[[nodiscard]] NetworkOperands<T>
make_pruned_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store, NetworkPlan const& plan,
                     NetworkSettings const& settings, PrunedRows const& rows,
                     InputFeatures<T> const& features, std::optional<BlockOfLayers<T>> const& whole);

/// Targets of the kept rows of the logits.
[[nodiscard]] pmm::RowTargets pruned_targets(pmm::RowTargets const& targets, PrunedRows const& rows);

// Lists the arrays of a pruned training once the kept rows are known, before the arrays are made; and estimates its memory from the list.

/// Plans of the networks on all rows and on the kept rows, with the facts that determine their arrays.
struct PrunedPlans {
  NetworkPlan const& whole;
  NetworkPlan const& pruned;
  NetworkEpochTraits const& whole_traits;
  NetworkEpochTraits const& pruned_traits;
};

/// Traits of a pruned step, except the non-zeros of its features, from those of a step on all rows.
[[nodiscard]] NetworkEpochTraits pruned_traits_of(NetworkEpochTraits traits, PrunedRows const& rows);

/// Lists the arrays of a pruned training. `evaluates`: includes a network on all rows.
void plan_pruned_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, PrunedPlans const& plans,
                        NetworkSettings const& settings, OptimizerSettings const& optimizer, bool evaluates);

/// Memory of the calling rank. Assumes that non-zeros of the whole graph's blocks and of features are spread evenly. `of_all_rows`:
/// memory of the same training without pruning.
template<class T>
[[nodiscard]] MemoryEstimate
estimate_pruned_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts, NetworkPlan const& plan,
                       NetworkSettings const& settings, OptimizerSettings const& optimizer,
                       PrunedRows const& rows, bool evaluates, MemoryEstimate const& of_all_rows);

template<class T>
class PrunedNetwork {
 public:
  /// Reads features and targets, makes the blocks, and draws the weights. `rows` must belong to this store and these settings. The
  /// network on all rows is made here if epochs are evaluated, otherwise by the first evaluate(). Grid and store must outlive this
  /// object. Collective over the grid's group. Throws UserError if the store does not fit the settings, or has no labels or split.
  PrunedNetwork(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                NetworkSettings const& model_settings, TrainSettings const& settings, PrunedRows const& rows);

  /// Trains as Trainer::run() does. Collective over the grid's world. Throws Error if a loss is not finite.
  TrainResult run(std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                  TrainProgress const& start = {}, StopRequest const& should_stop = {});
  /// Loss and accuracy on all rows. Collective over the grid's group.
  [[nodiscard]] Scores evaluate();

  [[nodiscard]] std::vector<Parameter<T>>& parameters() { return parameters_->list(); }
  [[nodiscard]] std::int64_t num_parameters() const { return parameters_->num_numbers(); }
  [[nodiscard]] ParameterUpdate<T>& update() { return *update_; }
  /// The trainer on the kept rows.
  [[nodiscard]] Trainer<T>& trainer() { return pruned_->trainer; }

 private:
  void make_whole(std::optional<BlockOfLayers<T>> block, InputFeatures<T> features);

  pmm::ProcessGrid const& grid_;
  graph::GraphStore const& store_;
  NetworkSettings model_settings_;
  TrainSettings settings_;
  NetworkPlan plan_; // of all rows
  std::shared_ptr<NetworkParameters<T>> parameters_;
  InputFeatures<T> trained_features_;
  pmm::RowLoss<T> whole_loss_;
  pmm::RowLoss<T> pruned_loss_; // shares the scratch of whole_loss_
  std::shared_ptr<ParameterUpdate<T>> update_;
  std::unique_ptr<TrainedNetwork<T>> whole_; // null until needed
  std::unique_ptr<TrainedNetwork<T>> pruned_;
};

extern template class PrunedNetwork<float>;
extern template class PrunedNetwork<double>;

} // namespace orthant::models
