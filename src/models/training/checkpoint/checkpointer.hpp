#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Takes checkpoints of a training that goes on. A checkpoint is a copy of the numbers in host memory, taken
// between two steps, which a second thread of each rank writes. README.md says who communicates when.

#include "models/training/background_task.hpp"
#include "models/training/checkpoint/checkpoint_file.hpp"

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

namespace orthant::models {

/// When checkpoints are due: at the ends of every so many epochs, or at a step if so much time has passed.
struct CheckpointInterval {
  std::int64_t epochs = 0; // 0: by time
  std::chrono::duration<double> time{};
};

struct CheckpointSettings {
  std::filesystem::path folder;
  CheckpointInterval interval;
  std::int64_t num_kept = 2;
  bool is_asynchronous = true;
  std::function<void()> before_commit; // on rank 0, any thread: flushes files that must be on the disk first
  CheckpointFacts facts;               // but progress, optimizer's steps and tensors
  Architecture architecture;
};

template<class T>
class Checkpointer {
 public:
  /// `state` must outlive it. `start`: of the training, from a checkpoint or not. Collective over the
  /// grid's world.
  Checkpointer(TrainingState<T>& state, CheckpointSettings settings, TrainProgress const& start = {});
  Checkpointer(Checkpointer const&) = delete;
  Checkpointer& operator=(Checkpointer const&) = delete;
  /// Waits for the thread. A checkpoint that is not complete is given up.
  ~Checkpointer() = default;

  /// To be called after every step (as a StopRequest is): keeps the parameters of a new best epoch, moves on
  /// the checkpoint under way, and begins another one that is due. Collective; communicates if a checkpoint
  /// is under way (8 bytes, after 1, 2, 4, .. steps) or if checkpoints are due by time (8 bytes).
  void after_step(TrainProgress const& progress);

  /// Begins a checkpoint, unless there is one of this very step. Waits for an earlier one first, and for this
  /// one too unless it is written asynchronously. A checkpoint that cannot be written is warned of once, and the
  /// training goes on. Collective.
  void save(TrainProgress const& progress);

  /// The checkpoint under way is complete, or given up. Collective.
  void finish();

  /// Whether the last one was given up. Collective.
  [[nodiscard]] bool has_failed() const;
  /// What the last one took, from its copy until all ranks had written; 0 before the first.
  [[nodiscard]] double last_seconds() const { return last_seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] bool is_due(TrainProgress const& progress);
  void begin(TrainProgress const& progress);
  /// All ranks have written: agrees, and lets rank 0 give the file its name. Waits for the ranks' threads.
  void complete();
  void run_in_background(std::function<void()> job);
  void give_up(std::exception const& reason);

  TrainingState<T>& state_;
  CheckpointSettings settings_;
  runtime::Communicator comm_;
  std::int64_t best_epoch_;                        // whose parameters the state keeps
  std::pair<std::int64_t, std::int64_t> saved_at_; // epoch and step of the last one
  Clock::time_point last_begin_ = Clock::now();
  double last_seconds_ = 0;
  std::int64_t step_ = 0; // of the optimizer, that the last one holds
  bool has_failed_ = false;
  bool has_warned_ = false;
  std::unique_ptr<CheckpointOutput<T>> output_; // on rank 0 until it has its name
  bool is_writing_ = false;                     // on all ranks
  std::uint64_t num_steps_since_ = 0;           // since it began
  std::function<void()> job_;                   // of the thread
  BackgroundTask thread_{[this] { job_(); }};   // last: it uses all of the above
};

extern template class Checkpointer<float>;
extern template class Checkpointer<double>;

} // namespace orthant::models
