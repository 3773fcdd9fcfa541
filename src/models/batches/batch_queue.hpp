#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The batches of one data group in the order of training, each sampled on a second thread while the step
// before it runs: ScaleGNN's overlapped sampling (arXiv 2604.02651), across the ends of epochs too. Two
// batches are in memory, the one in use and the next. With Prefetch::none they are filled in line, and one is.

#include "models/batches/batch_maker.hpp"
#include "models/core/background_task.hpp"
#include "runtime/report/timer.hpp"
#include "sampling/sampler.hpp"

#include <array>
#include <cstdint>
#include <optional>

namespace orthant::models {

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

} // namespace orthant::models
