#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Full-graph training: every epoch one forward and backward pass over all vertices and one update. The loss
// of an epoch is that of its forward pass, before its update; evaluation is after the update (DESIGN section
// 4).

#include "models/gcn.hpp"
#include "models/optimizer.hpp"
#include "models/vertex_loss.hpp"
#include "runtime/metrics.hpp"

#include <array>
#include <functional>
#include <optional>

namespace orthant::models {

struct TrainSettings {
  OptimizerSettings optimizer;
  double weight_decay = 0;
  std::optional<double>
      weight_decay_first_layer;    // in place of weight_decay, for layer 0; biases are never decayed
  std::optional<double> clip_norm; // of all gradients together
  std::int64_t num_epochs = 100;
  std::int64_t eval_every = 10; // 0: never; the last epoch is always evaluated otherwise
};

/// The epoch with the best validation accuracy (the first of several), among those evaluated.
struct BestEpoch {
  std::int64_t epoch = 0; // 0: none was evaluated
  Scores scores;
};

struct TrainResult {
  std::optional<Scores> last; // of the last evaluation
  BestEpoch best;
  double median_epoch_seconds = 0; // the first epoch left out where there are others
  double last_loss = 0;
  std::array<std::int64_t, 3> epoch_bytes{}; // communicated over x, y, z in an epoch, sum over ranks
};

/// Bytes that this rank has communicated so far, over x, y, z, the group and the data axis.
[[nodiscard]] std::array<std::int64_t, 5> communicated_bytes(pmm::ProcessGrid const& grid);

template<class T>
class FullGraphTrainer {
 public:
  FullGraphTrainer(pmm::ProcessGrid const& grid, Gcn<T>& model, pmm::RowLoss<T>& loss,
                   TrainSettings const& settings);

  /// Trains all epochs; `on_epoch` is called after each, on every rank, with the same record. Collective over
  /// the grid's world. Throws Error, naming epoch and layer, where the loss is not finite.
  TrainResult run(std::function<void(runtime::EpochRecord const&)> const& on_epoch);

  /// Loss and accuracy of the model as it is, without dropout. Collective.
  [[nodiscard]] Scores evaluate();

 private:
  /// One step: loss, gradients' norms (one a layer), update.
  runtime::EpochRecord train_epoch(std::int64_t epoch);
  std::vector<double> gradient_norms();

  pmm::ProcessGrid const& grid_;
  Gcn<T>& model_;
  pmm::RowLoss<T>& loss_;
  TrainSettings settings_;
  Optimizer<T> optimizer_;
  runtime::DefaultExec exec_;
  runtime::PhaseTimes phases_;
};

extern template class FullGraphTrainer<float>;
extern template class FullGraphTrainer<double>;

} // namespace orthant::models
