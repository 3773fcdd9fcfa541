#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sampled batches as a BatchSource: each is bound to a graph network and to the loss of its vertices. Dropout is keyed by the epoch and the
// batch's index in it, so G data groups train like one group that accumulates G batches.

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

// Queue of one data group's batches in the order of training. A second thread, or kernels of a second queue of the device, sample the
// next batch while the current step runs, also across the ends of epochs (overlapped sampling of ScaleGNN, arXiv 2604.02651). Two batches
// are in memory, the current and the next one. With Prefetch::none and batches of the host, the caller's thread samples, and one batch is
// in memory.

// Samplers by name.

/// uniform: all vertices have the same probability. degree: it grows with the degree. clusters: whole clusters of the store.
enum class SamplerKind : std::uint8_t { uniform, degree, clusters };

/// Accept "uniform", "degree" or "clusters"; "rescale" or "renormalize". Throw UserError for other words.
[[nodiscard]] SamplerKind parse_sampler(std::string_view word);
[[nodiscard]] sampling::BatchEdges parse_batch_edges(std::string_view word);

/// How edges of batches are weighted for a model: as asked for, or by relations if it knows them.
[[nodiscard]] sampling::BatchEdges batch_edges_for(NetworkSettings const& model, sampling::BatchEdges asked);

struct SamplerSettings {
  SamplerKind kind = SamplerKind::uniform;
  sampling::BatchEdges edges = sampling::BatchEdges::rescale;
  std::int64_t batch_size = 1024;       // B, per group
  std::int64_t num_accumulated = 1;     // K, batches per step and group
  std::optional<double> train_fraction; // fraction of training vertices in a batch; nullopt: not fixed

  /// Whether a batch has fixed numbers of vertices of several kinds.
  [[nodiscard]] bool has_strata() const { return kind == SamplerKind::degree || train_fraction.has_value(); }
};

/// Throws UserError if the settings do not fit the store. Collective over the grid's world.
[[nodiscard]] std::unique_ptr<sampling::Sampler const> make_sampler(pmm::ProcessGrid const& grid,
                                                                    graph::GraphStore const& store,
                                                                    SamplerSettings const& settings,
                                                                    std::uint64_t seed);

enum class Prefetch : std::uint8_t { none, next_batch };

template<class T>
class BatchQueue {
 public:
  /// Batches for data group `group`, `num_accumulated` per step, up to the end of epoch `num_epochs`. The first one belongs to step
  /// `first_step` (from 0) of epoch `first_epoch` (from 1). `maker` and `sampler` must outlive the queue.
  BatchQueue(BatchMaker<T>& maker, sampling::Sampler const& sampler, std::int64_t group,
             std::int64_t num_accumulated, std::int64_t num_epochs, Prefetch prefetch,
             std::int64_t first_epoch, std::int64_t first_step);

  /// Returns the next batch, which is valid until the next call. With prefetching, starts the one after it. Phases: "sampling_wait",
  /// the time that this thread waited, and "sampling", the time to make the batch, on either thread. Does not communicate.
  [[nodiscard]] PreparedBatch<T>& next(runtime::Instruments& instruments, runtime::PhaseTimes& phases);
  /// Starts the kernels that make the batch after the one that next() returned. Call it when that one is bound: binding may wait for all
  /// kernels. Without kernels a no-op. Phase "sampling".
  void start_kernels(runtime::Instruments& instruments, runtime::PhaseTimes& phases);

 private:
  struct Place {
    std::int64_t epoch = 1;
    std::int64_t step = 0;
    std::int64_t accumulated = 0;
  };
  [[nodiscard]] bool is_at_end() const { return place_.epoch > num_epochs_; }
  /// Begin and end the making of the batch at back_.
  void start_back();
  void finish_back(runtime::Instruments& instruments);
  void fill_back();
  void advance();

  BatchMaker<T>& maker_;
  sampling::Sampler const& sampler_;
  std::int64_t group_;
  std::int64_t num_accumulated_;
  std::int64_t num_epochs_;
  Place place_; // of the batch that is made next, or is being made
  std::array<PreparedBatch<T>, 2> batches_;
  std::size_t back_ = 0; // index of the batch that is being made; with prefetching the other one is in use
  std::optional<runtime::RunClock::Clock::time_point>
      task_start_;                     // of the batch that is being made, except the first
  std::optional<BackgroundTask> task_; // declared last, because it fills the members above
};

extern template class BatchQueue<float>;
extern template class BatchQueue<double>;

struct MiniBatchSettings : SamplerSettings {
  std::int64_t num_full_epochs = 0; // number of last epochs on the full graph
  Prefetch prefetch = Prefetch::next_batch;
  BatchPlace place = BatchPlace::automatic;
};

/// Sizes for estimates. `is_evaluated`: the whole graph is evaluated.
[[nodiscard]] BatchSizes sizes_of(MiniBatchSettings const& settings, bool is_evaluated);

template<class T>
class NetworkBatches final : public BatchSource {
 public:
  /// Batches for `network` and `loss` up to epoch `num_epochs`. `num_train`: number of the graph's training vertices. All
  /// references must outlive this object.
  NetworkBatches(pmm::ProcessGrid const& grid, GraphNetwork<T>& network, pmm::RowLoss<T>& loss,
                 std::unique_ptr<BatchMaker<T>> maker, sampling::Sampler const& sampler,
                 MiniBatchSettings const& settings, std::int64_t num_epochs, std::int64_t num_train);

  [[nodiscard]] bool uses_kernels() const { return maker_->uses_kernels(); }
  [[nodiscard]] std::int64_t num_steps() const override { return sampler_.num_steps(); }
  [[nodiscard]] std::int64_t num_accumulated() const override { return settings_.num_accumulated; }
  /// Mean number of training vertices in a step.
  [[nodiscard]] std::optional<std::int64_t> nominal_count() const override { return nominal_count_; }
  /// Mean number of neighbors that a vertex of a batch keeps, over up to 4 batches of epoch 1. Call before start_at().
  /// Collective over the grid's group.
  [[nodiscard]] double num_kept_neighbours();
  /// Makes sampling start at this step.
  void start_at(std::int64_t epoch, std::int64_t step) override;
  /// Adds the phases "sampling_wait", "sampling" and "bind".
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
  std::unique_ptr<BatchQueue<T>> queue_; // declared last, because it uses the members above
};

extern template class NetworkBatches<float>;
extern template class NetworkBatches<double>;

} // namespace orthant::models
