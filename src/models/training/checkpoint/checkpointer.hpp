#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Takes checkpoints of a training that goes on. A checkpoint is a copy of the numbers in host memory, taken
// between two steps, which a second thread of each rank writes. README.md says who communicates when.

#include "models/training/background_task.hpp"
#include "models/training/checkpoint/checkpoint_file.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace orthant::models {

// The checkpoints of one training in a folder, each named by the number of optimizer steps that it holds:
// checkpoint-000020.h5, checkpoint-000040.h5, .., and the link `latest` to the newest. Files have their names
// when they are complete, so the largest number is the newest complete one. Earlier versions counted the
// files instead; those are found in the same way. For one rank; nothing communicates.

[[nodiscard]] std::filesystem::path checkpoint_path(std::filesystem::path const& folder, std::int64_t step);

/// The numbers of the checkpoints in a folder, ascending; none if there is no such folder.
[[nodiscard]] std::vector<std::int64_t> checkpoint_numbers(std::filesystem::path const& folder);

/// Makes the folder, and those above it, if it is not there, and removes what writers that were killed have left
/// there. Throws UserError if that cannot be done, or if a checkpoint could not be written there.
void require_writable_folder(std::filesystem::path const& folder);

/// To be called before a training that is at `step` writes to the folder: checkpoints of later steps, which are damaged
/// or which it would write again, get other names, as set_aside() gives them. `resumed`: the checkpoint that it
/// goes on from, in this folder or another one; empty: none. Returns the new names. Throws UserError.
[[nodiscard]] std::vector<std::filesystem::path>
set_aside_later_checkpoints(std::filesystem::path const& folder, std::int64_t step,
                            std::filesystem::path const& resumed);

/// Lets `latest` lead to the checkpoint of that number, at once. Does nothing on a file system without links: the names tell
/// which one is the newest.
void point_latest_to(std::filesystem::path const& folder, std::int64_t number);

/// Removes all checkpoints but the `num_kept` with the largest numbers up to `newest`. Those that cannot be
/// removed stay.
void remove_older_checkpoints(std::filesystem::path const& folder, std::int64_t newest,
                              std::int64_t num_kept) noexcept;

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

// A training goes on from a checkpoint. One that is damaged is named, and the one before it is used. One of
// another training is refused.

struct ResumePoint {
  std::filesystem::path path;
  CheckpointFacts facts;
};

/// Throws UserError if a training must not go on from a checkpoint with these facts.
using RequireFits = std::function<void(std::filesystem::path const&, CheckpointFacts const&)>;

/// The newest checkpoint of a folder whose facts can be read and have the right checksum, or nothing. The arrays
/// are not read. Collective. Throws what `require_fits` throws.
[[nodiscard]] std::optional<ResumePoint> find_newest_checkpoint(runtime::Communicator const& comm,
                                                                std::filesystem::path const& folder,
                                                                RequireFits const& require_fits);

/// The state := that of the newest checkpoint of a folder that is sound;
/// each newer one is warned of. Returns nothing and leaves the state unchanged if there is no checkpoint. Collective over the grid's
/// world. Throws UserError if a checkpoint is of another training.
template<class T>
[[nodiscard]] std::optional<ResumePoint>
resume_newest(std::filesystem::path const& folder, TrainingState<T>& state, RequireFits const& require_fits);

/// The state := that of a checkpoint. Collective over the grid's world. Throws UserError if it is damaged or of
/// another training.
template<class T>
[[nodiscard]] ResumePoint resume_from(std::filesystem::path const& path, TrainingState<T>& state,
                                      RequireFits const& require_fits);

} // namespace orthant::models
