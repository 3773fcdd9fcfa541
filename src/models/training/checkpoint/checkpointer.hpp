#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Saves checkpoints during a training, and resumes from them. A checkpoint is a copy of the state in host memory, made between two
// steps; a second thread of each rank writes it. README.md lists who communicates when.

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

// Files of the checkpoints of one training in a folder. Each is named by the number of optimizer steps before it:
// checkpoint-000020.h5, checkpoint-000040.h5, .., and the link `latest` refers to the newest one. A file gets its name when it is
// complete, so the largest number is the newest complete checkpoint. Earlier versions numbered the files consecutively; such files
// are found as well. These functions run on one rank and do not communicate.

[[nodiscard]] std::filesystem::path checkpoint_path(std::filesystem::path const& folder, std::int64_t step);

/// Numbers of the checkpoints in a folder, ascending; empty if the folder does not exist.
[[nodiscard]] std::vector<std::int64_t> checkpoint_numbers(std::filesystem::path const& folder);

/// Creates the folder and its parents if necessary, and removes temporary files of killed writers. Throws UserError if this fails, or if no
/// checkpoint could be written there.
void require_writable_folder(std::filesystem::path const& folder);

/// Call before a training at step `step` writes to the folder. Renames checkpoints of later steps (set_aside()): they are damaged,
/// or the training will write them again. `resumed`: the checkpoint from which the training resumes, in this folder or elsewhere;
/// empty if it does not resume. Returns the new names. Throws UserError if renaming fails.
[[nodiscard]] std::vector<std::filesystem::path>
set_aside_later_checkpoints(std::filesystem::path const& folder, std::int64_t step,
                            std::filesystem::path const& resumed);

/// Atomically sets the link `latest` to the checkpoint with this number. No-op on a file system without links: the names
/// show which one is the newest.
void point_latest_to(std::filesystem::path const& folder, std::int64_t number);

/// Removes all checkpoints except the `num_kept` with the largest numbers up to `newest`. Ignores failures to remove.
void remove_older_checkpoints(std::filesystem::path const& folder, std::int64_t newest,
                              std::int64_t num_kept) noexcept;

/// When checkpoints are due: after every N epochs, or at the first step after a period of time.
struct CheckpointInterval {
  std::int64_t epochs = 0; // 0: by time
  std::chrono::duration<double> time{};
};

struct CheckpointSettings {
  std::filesystem::path folder;
  CheckpointInterval interval;
  std::int64_t num_kept = 2;
  bool is_asynchronous = true;
  std::function<void()> before_commit; // called on rank 0, on any thread: flushes other files
  CheckpointFacts facts;               // without progress, number of optimizer steps, and tensors
  Architecture architecture;
};

template<class T>
class Checkpointer {
 public:
  /// `state` must outlive this object. `start`: progress with which the training starts. Collective over the grid's world.
  Checkpointer(TrainingState<T>& state, CheckpointSettings settings, TrainProgress const& start = {});
  Checkpointer(Checkpointer const&) = delete;
  Checkpointer& operator=(Checkpointer const&) = delete;
  /// Waits for the thread. An incomplete checkpoint is abandoned.
  ~Checkpointer() = default;

  /// Call after every step (as a StopRequest is). Keeps the parameters of a new best epoch, advances the checkpoint that is being
  /// written, and begins a new one if it is due. Collective over the grid's world. Communicates 8 bytes after 1, 2, 4, .. steps
  /// while a checkpoint is being written, and 8 bytes per step if checkpoints are due by time.
  void after_step(TrainProgress const& progress);

  /// Begins a checkpoint, unless this step already has one. First waits for an earlier one; waits for this one unless writing is
  /// asynchronous. If a checkpoint cannot be written, warns once, and the training continues. Collective over the grid's world.
  void save(TrainProgress const& progress);

  /// Waits until the current checkpoint is complete or abandoned. Collective over the grid's world.
  void finish();

  /// Whether the last checkpoint was abandoned. Collective over the grid's world.
  [[nodiscard]] bool has_failed() const;
  /// Seconds of the last checkpoint, from the copy until all ranks had written; 0 before the first one.
  [[nodiscard]] double last_seconds() const { return last_seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] bool is_due(TrainProgress const& progress);
  void begin(TrainProgress const& progress);
  /// After all ranks have written: agrees on errors, and lets rank 0 rename the file. Waits for the threads of all ranks.
  void complete();
  void run_in_background(std::function<void()> job);
  void give_up(std::exception const& reason);

  TrainingState<T>& state_;
  CheckpointSettings settings_;
  runtime::Communicator comm_;
  std::int64_t best_epoch_;                        // epoch of the parameters that state.best() has
  std::pair<std::int64_t, std::int64_t> saved_at_; // epoch and step of the last checkpoint
  Clock::time_point last_begin_ = Clock::now();
  double last_seconds_ = 0;
  std::int64_t step_ = 0; // optimizer steps in the last checkpoint
  bool has_failed_ = false;
  bool has_warned_ = false;
  std::unique_ptr<CheckpointOutput<T>> output_; // on rank 0 until the file is renamed
  bool is_writing_ = false;                     // the same on all ranks
  std::uint64_t num_steps_since_ = 0;           // steps since the checkpoint began
  std::function<void()> job_;                   // job of the thread
  BackgroundTask thread_{[this] { job_(); }};   // declared last, because it uses all other members
};

extern template class Checkpointer<float>;
extern template class Checkpointer<double>;

// Resuming from a checkpoint. If one is damaged, a message names it, and the previous one is used. A checkpoint of
// another training is rejected.

struct ResumePoint {
  std::filesystem::path path;
  CheckpointFacts facts;
};

/// Throws UserError if a training must not resume from a checkpoint with these facts.
using RequireFits = std::function<void(std::filesystem::path const&, CheckpointFacts const&)>;

/// Newest checkpoint of a folder whose facts can be read and have the right checksum; nullopt if none has. Does not read the
/// arrays. Collective over `comm`. Rethrows exceptions of `require_fits`.
[[nodiscard]] std::optional<ResumePoint> find_newest_checkpoint(runtime::Communicator const& comm,
                                                                std::filesystem::path const& folder,
                                                                RequireFits const& require_fits);

/// Loads the state from the newest sound checkpoint of a folder, and warns of each damaged newer one. If there is no
/// checkpoint, returns nullopt and does not change the state. Collective over the grid's world. Throws UserError if a
/// checkpoint belongs to another training.
template<class T>
[[nodiscard]] std::optional<ResumePoint>
resume_newest(std::filesystem::path const& folder, TrainingState<T>& state, RequireFits const& require_fits);

/// Loads the state from a checkpoint. Collective over the grid's world. Throws UserError if it is damaged or belongs to another training.
template<class T>
[[nodiscard]] ResumePoint resume_from(std::filesystem::path const& path, TrainingState<T>& state,
                                      RequireFits const& require_fits);

} // namespace orthant::models
