#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sampled batches as a source of training: each is bound to a GCN and to the loss of its vertices. Dropout is
// keyed by epoch and by the batch's index in it, so G data groups train as one that accumulates G batches.

#include "models/batches/batch_queue.hpp"
#include "models/batches/make_sampler.hpp"
#include "models/gnn/gcn.hpp"
#include "models/gnn/memory_estimate.hpp"
#include "models/training/batch_source.hpp"

#include <memory>

namespace orthant::models {

struct MiniBatchSettings : SamplerSettings {
  std::int64_t num_full_epochs = 0; // the last ones, on the full graph
  Prefetch prefetch = Prefetch::next_batch;
};

/// What estimates need of them. `is_evaluated`: the whole graph is, now and then.
[[nodiscard]] BatchSizes sizes_of(MiniBatchSettings const& settings, bool is_evaluated);

template<class T>
class NetworkBatches final : public BatchSource {
 public:
  /// Batches of all epochs to `num_epochs` for `network` and `loss`; `num_train` are the training vertices of
  /// the graph. All references must outlive it.
  NetworkBatches(pmm::ProcessGrid const& grid, GraphNetwork<T>& network, pmm::RowLoss<T>& loss,
                 std::unique_ptr<BatchMaker<T>> maker, sampling::Sampler const& sampler,
                 MiniBatchSettings const& settings, std::int64_t num_epochs, std::int64_t num_train);

  [[nodiscard]] std::int64_t num_steps() const override { return sampler_.num_steps(); }
  [[nodiscard]] std::int64_t num_accumulated() const override { return settings_.num_accumulated; }
  /// The training vertices of a step if all steps had as many.
  [[nodiscard]] std::optional<std::int64_t> nominal_count() const override { return nominal_count_; }
  /// Neighbours that a vertex of a batch keeps, on average over up to 4 batches of epoch 1. Collective over the
  /// grid's group; before start_at().
  [[nodiscard]] double num_kept_neighbours();
  /// Begins to sample.
  void start_at(std::int64_t epoch, std::int64_t step) override;
  /// Phases "sampling_wait", "sampling" and "bind".
  std::uint64_t next(std::int64_t epoch, runtime::PhaseTimes& phases) override;

 private:
  pmm::ProcessGrid const& grid_;
  GraphNetwork<T>& network_;
  pmm::RowLoss<T>& loss_;
  std::unique_ptr<BatchMaker<T>> maker_;
  sampling::Sampler const& sampler_;
  MiniBatchSettings settings_;
  std::int64_t num_epochs_;
  std::int64_t nominal_count_;
  std::unique_ptr<BatchQueue<T>> queue_; // last: it fills batches by what is above
};

extern template class NetworkBatches<float>;
extern template class NetworkBatches<double>;

} // namespace orthant::models
