#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sampled batches as a source of training: each is bound to a GCN and to the loss of its vertices. Dropout is
// keyed by epoch and by the batch's index in it, so G data groups train as one that accumulates G batches.

#include "graph/store/store_reader.hpp"
#include "models/gnn/batches/batch_maker.hpp"
#include "models/gnn/network/graph_network.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/training/background_task.hpp"
#include "models/training/batch_source.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/report/timer.hpp"
#include "sampling/sampler.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace orthant::models {

// The batches of one data group in the order of training, each sampled on a second thread while the step
// before it runs: ScaleGNN's overlapped sampling (arXiv 2604.02651), across the ends of epochs too. Two
// batches are in memory, the one in use and the next. With Prefetch::none they are filled in line, and one is.

// Ways of drawing batches, by name.

/// uniform: each vertex equally often. degree: with probability by degree. clusters: whole clusters of the store.
enum class SamplerKind : std::uint8_t { uniform, degree, clusters };

/// "uniform", "degree" or "clusters"; "rescale" or "renormalize". UserError on another.
[[nodiscard]] SamplerKind parse_sampler(std::string_view word);
[[nodiscard]] sampling::BatchEdges parse_batch_edges(std::string_view word);

struct SamplerSettings {
  SamplerKind kind = SamplerKind::uniform;
  sampling::BatchEdges edges = sampling::BatchEdges::rescale;
  std::int64_t batch_size = 1024;       // B, of a group
  std::int64_t num_accumulated = 1;     // K
  std::optional<double> train_fraction; // of training vertices in a batch; none: as chance has it

  /// Whether vertices are of several kinds, of which a batch has fixed numbers.
  [[nodiscard]] bool has_strata() const { return kind == SamplerKind::degree || train_fraction.has_value(); }
};

/// Throws UserError if the settings and the store do not go together. Collective over the grid's world.
[[nodiscard]] std::unique_ptr<sampling::Sampler const> make_sampler(pmm::ProcessGrid const& grid,
                                                                    graph::GraphStore const& store,
                                                                    SamplerSettings const& settings,
                                                                    std::uint64_t seed);

enum class Prefetch : std::uint8_t { none, next_batch };

template<class T>
class BatchQueue {
 public:
  /// Batches up to the end of epoch `num_epochs`, `num_accumulated` per step, for data group `group`; the
  /// first is that of `first_step` (from 0) of `first_epoch` (from 1). Both referents must outlive the queue.
  BatchQueue(BatchMaker<T>& maker, sampling::Sampler const& sampler, std::int64_t group,
             std::int64_t num_accumulated, std::int64_t num_epochs, Prefetch prefetch,
             std::int64_t first_epoch, std::int64_t first_step);

  /// The next batch, until the next call; and, with prefetching, starts on the one after. Phases:
  /// "sampling_wait", that this thread stood still, and "sampling", that the batch took on whichever thread.
  /// No communication.
  [[nodiscard]] HostBatch<T>& next(runtime::Instruments& instruments, runtime::PhaseTimes& phases);

 private:
  struct Place {
    std::int64_t epoch = 1;
    std::int64_t step = 0;
    std::int64_t accumulated = 0;
  };
  [[nodiscard]] bool is_at_end() const { return place_.epoch > num_epochs_; }
  void fill_back();
  void advance();

  BatchMaker<T>& maker_;
  sampling::Sampler const& sampler_;
  std::int64_t group_;
  std::int64_t num_accumulated_;
  std::int64_t num_epochs_;
  Place place_; // of the batch that is filled next, or is being filled
  std::array<HostBatch<T>, 2> batches_;
  std::size_t back_ = 0; // the one that is filled; with prefetching the other is in use
  std::optional<runtime::RunClock::Clock::time_point>
      task_start_;                     // of the batch that is being filled, but the first
  std::optional<BackgroundTask> task_; // last: it fills what is above
};

extern template class BatchQueue<float>;
extern template class BatchQueue<double>;

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
