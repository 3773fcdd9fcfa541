#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of a training: --checkpoint and --resume, the conditions on which it stops early, and its run.
//
// A training stops before its last epoch after a signal, or shortly before its time limit. At Ctrl-C (SIGINT) it first finishes the
// epoch; without checkpoints it does so at every signal, because the rest of an epoch could not be resumed.

#include "cli/options/command.hpp"
#include "cli/options/shared_options.hpp"
#include "models/training/checkpoint/checkpointer.hpp"
#include "runtime/job/time_limit.hpp"

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace orthant::cli {

class StopCondition {
 public:
  /// For a training without checkpoints. Catches signals from now on. `unit`: "epoch" or "step".
  StopCondition(Context const& context, std::string_view unit);
  /// For a training with checkpoints. `max_walltime`: value of --max-walltime, or empty; a time limit of Slurm also counts. Throws
  /// UserError if `max_walltime` is not a time. Collective.
  StopCondition(Context const& context, std::string_view unit, std::string const& max_walltime);

  /// Call it after every step. Returns true if the training must stop here. `checkpoint_seconds`: duration of a checkpoint, 0 if none has
  /// been measured. Same result on all ranks. Collective (8 bytes).
  [[nodiscard]] bool is_due(bool ends_epoch, double checkpoint_seconds);
  /// Like the function above, for a training without checkpoints. Collective only if `ends_epoch` is true.
  [[nodiscard]] bool is_due(bool ends_epoch);
  /// Reason of the stop: "SIGUSR1" or "the time limit"; empty if is_due() has never returned true.
  [[nodiscard]] std::string const& reason() const { return reason_; }
  /// Signal that stopped the training, or 0.
  [[nodiscard]] int signal() const { return signal_; }

 private:
  /// Returns true if any rank wants to stop. `own`: this rank's reason as a number, or 0. Collective.
  [[nodiscard]] bool agree(std::int64_t own);
  [[nodiscard]] bool is_time_over(double checkpoint_seconds);

  Context const& context_;
  std::string answer_; // printed at Ctrl-C
  runtime::StopSignals signals_;
  std::optional<double> end_time_; // Unix time
  std::chrono::steady_clock::time_point last_step_;
  double longest_step_ = 0; // seconds
  std::string reason_;
  int signal_ = 0;
};

/// True if --resume finds a checkpoint. Reads the file system.
[[nodiscard]] bool goes_on_from_checkpoint(CheckpointOptions const& options);

/// Unit and length of a training.
struct TrainingLength {
  std::string unit; // "epoch", "step"
  std::int64_t num_units = 0;
  std::int64_t patience = 0; // 0: no early stop
};

/// Identity of a training, and further conditions on the checkpoint that it resumes from.
struct TrainingIdentity {
  models::Identity parts;
  bool decays_to_the_end = false; // true if the learning rate depends on the length of the training
  models::RequireFits require_progress = {}; // throws UserError if not; may be empty
};

class Checkpoints {
 public:
  /// Creates the folder of checkpoints if there is none. `weights`: --init-from and --init-skip. Throws UserError if the options
  /// contradict each other or the folder cannot be written. Collective.
  Checkpoints(Context const& context, CheckpointOptions const& options, TrainingLength length,
              WeightOptions const& weights);

  /// True if the training writes checkpoints or resumes from one.
  [[nodiscard]] bool is_on() const { return !options_.checkpoint.empty() || options_.resume != "never"; }
  /// Sets the identity of the training; must be called before anything is printed about it. Throws UserError if the checkpoint to resume
  /// from belongs to another training. Collective.
  void identify(TrainingIdentity identity);

  /// Loads the checkpoint to resume from into `state`. Returns its progress: the very beginning if there is none. Collective. Throws
  /// UserError if the checkpoint cannot be read.
  template<class T>
  [[nodiscard]] models::TrainProgress resume(models::TrainingState<T>& state);
  /// Removes the lines of the metrics that the resumed run writes again, or renames the file if it belongs to another training. Adds the
  /// training and the point of resumption to the run's record. Collective.
  void prepare_metrics(nlohmann::ordered_json& run_record) const;

  /// Unit of the training: "epoch" or "step".
  [[nodiscard]] std::string const& unit() const { return length_.unit; }
  [[nodiscard]] bool writes() const { return !options_.checkpoint.empty(); }
  [[nodiscard]] Context const& context() const { return context_; }
  [[nodiscard]] CheckpointOptions const& options() const { return options_; }
  /// Settings of the checkpoints to write, after resume(). Prepares their folder. Collective.
  [[nodiscard]] models::CheckpointSettings settings(models::Architecture const& architecture) const;

 private:
  [[nodiscard]] bool was_given(char const* option) const;
  void require_sensible(WeightOptions const& weights) const;
  /// Throws UserError if the folder contains checkpoints of another training. Collective.
  void require_own_folder(std::string const& training) const;
  /// Renames the checkpoints that are newer than the one this training resumes from. Collective.
  void set_aside_later_checkpoints() const;
  [[nodiscard]] models::RequireFits fits() const {
    return [this](auto const& path, auto const& facts) { require_fits(path, facts); };
  }
  void require_fits(std::filesystem::path const& path, models::CheckpointFacts const& facts) const;
  /// If the length of the training differs from the checkpoint's, logs the effect on the learning rate. `next_rate`: rate of the next
  /// step.
  void describe_length(models::CheckpointFacts const& facts, double next_rate) const;

  Context const& context_;
  CheckpointOptions const& options_;
  TrainingLength length_;
  models::CheckpointInterval interval_;
  TrainingIdentity identity_;
  std::string training_; // unique name of the training
  std::optional<models::ResumePoint> resumed_;
};

/// Runs a training. If the options ask for it, resumes from a checkpoint, writes checkpoints, and keeps the weights of the best epoch.
template<class T>
class ResumableRun {
 public:
  /// Loads the checkpoint, if any. All references must outlive this object. Collective. Throws UserError if the checkpoint cannot be read.
  ResumableRun(Checkpoints& checkpoints, pmm::ProcessGrid const& grid,
               std::vector<models::Parameter<T>> const& parameters, models::ParameterUpdate<T>& update,
               bool keeps_best)
      : checkpoints_(checkpoints) {
    if (!checkpoints.is_on() && !keeps_best) return;
    state_.emplace(grid, parameters, update);
    if (checkpoints.is_on()) start_ = checkpoints.resume(*state_);
  }

  /// Calls trainer.run() until the end or until a StopCondition is due, and writes a checkpoint after the last step. `architecture`: as
  /// in the weights files. Collective. Throws UserError if the training was stopped and this checkpoint could not be written.
  template<class Trainer>
  models::TrainResult run(Trainer& trainer, std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                          models::Architecture const& architecture) {
    if (!checkpoints_.writes()) {
      StopCondition stop(checkpoints_.context(), checkpoints_.unit());
      auto best_epoch = start_.best.epoch;
      auto const result = trainer.run(on_epoch, start_, [&](models::TrainProgress const& progress) {
        if (state_ && progress.best.epoch != best_epoch) state_->keep_best();
        best_epoch = progress.best.epoch;
        return stop.is_due(progress.step == 0);
      });
      if (!result.is_complete) note_stop(stop);
      return result;
    }
    auto const& options = checkpoints_.options();
    models::Checkpointer<T> checkpointer(*state_, checkpoints_.settings(architecture), start_);
    StopCondition stop(checkpoints_.context(), checkpoints_.unit(), options.max_walltime);
    auto result = trainer.run(on_epoch, start_, [&](models::TrainProgress const& progress) {
      checkpointer.after_step(progress);
      return stop.is_due(progress.step == 0, checkpointer.last_seconds());
    });
    checkpointer.save(result.progress);
    checkpointer.finish();
    if (result.is_complete) return result;
    note_stop(stop);
    if (checkpointer.has_failed())
      runtime::throw_user(
          "the training was stopped by {}, and its last checkpoint could not be written to '{}'", stopped_by_,
          options.checkpoint);
    return result;
  }

  /// Parameters of the best epoch; null if there is none.
  [[nodiscard]] models::HostCopy<T> const* best() const { return state_ ? state_->best().get() : nullptr; }
  /// Reason why the last run() stopped before its end; empty if it did not.
  [[nodiscard]] std::string const& stopped_by() const { return stopped_by_; }
  /// Signal that stopped the last run(), or 0.
  [[nodiscard]] int stop_signal() const { return stop_signal_; }

 private:
  void note_stop(StopCondition const& stop) {
    stopped_by_ = stop.reason();
    stop_signal_ = stop.signal();
  }

  Checkpoints& checkpoints_;
  std::optional<models::TrainingState<T>> state_;
  std::string stopped_by_;
  int stop_signal_ = 0;
  models::TrainProgress start_;
};

/// Interval between checkpoints: "10" units or "30min" minutes. Throws UserError for any other text.
[[nodiscard]] models::CheckpointInterval parse_interval(std::string const& text,
                                                        std::string_view unit = "epoch");

/// Parts of an identity: all options except those that may change in every resumed training (where it runs and what it reports) and
/// `free_options`, which may change in this kind of training.
[[nodiscard]] models::Identity identity_of_options(nlohmann::ordered_json const& run_record,
                                                   std::span<std::string_view const> free_options);

/// Identity part of an option that sets the length of a training. Its value may differ if the learning rate does not depend on it, or
/// with --resume-override length. Older checkpoints do not have this part.
[[nodiscard]] models::IdentityPart part_of_length(std::string const& name, std::string const& value);
/// True if the learning rate decays over the whole training, so that it depends on its length.
[[nodiscard]] bool decays_to_the_end(OptimizerOptions const& options);

/// Most bytes of host memory that copies of parameters take on this rank in addition to the training: the parameters of the best epoch
/// and of the next best one, and with checkpoints also the parameters and their two moments. `lengths`: numbers of each parameter on this
/// rank.
[[nodiscard]] std::int64_t host_copy_bytes(pmm::StepPlan const& step,
                                           std::vector<std::int64_t> const& lengths, bool writes_checkpoints);

} // namespace orthant::cli
