#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// When a training ends before its last epoch: a signal has come, or its time is nearly over. At Ctrl-C (SIGINT)
// the epoch ends first, and so it does at any signal if there are no checkpoints, from which the rest of an epoch
// could go on.
//
// --checkpoint and --resume of a training: which training it is, where it goes on, and its run.

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
  /// Of a training without checkpoints: catches signals from here on. `unit`: what it counts, "epoch" or "step".
  StopCondition(Context const& context, std::string_view unit);
  /// Of a training with checkpoints. `max_walltime`: --max-walltime, or empty; a time limit of Slurm counts, too.
  /// Throws UserError if that is no time. Collective.
  StopCondition(Context const& context, std::string_view unit, std::string const& max_walltime);

  /// To be asked after every step: whether to stop here. Checkpoints take about `checkpoint_seconds`; 0: nobody
  /// knows yet. The same on all ranks. Collective (8 bytes).
  [[nodiscard]] bool is_due(bool ends_epoch, double checkpoint_seconds);
  /// Without checkpoints: to be asked after every step, the same, but collective only where an epoch ends.
  [[nodiscard]] bool is_due(bool ends_epoch);
  /// "SIGUSR1", "the time limit"; empty if is_due() was never true.
  [[nodiscard]] std::string const& reason() const { return reason_; }
  /// The signal that was it, or 0.
  [[nodiscard]] int signal() const { return signal_; }

 private:
  /// Whether any rank wants to stop; this one has a reason or 0. Collective.
  [[nodiscard]] bool agree(std::int64_t own);
  [[nodiscard]] bool is_time_over(double checkpoint_seconds);

  Context const& context_;
  std::string answer_; // to Ctrl-C
  runtime::StopSignals signals_;
  std::optional<double> end_time_; // Unix time
  std::chrono::steady_clock::time_point last_step_;
  double longest_step_ = 0; // seconds
  std::string reason_;
  int signal_ = 0;
};

/// Whether there is a checkpoint that --resume begins with. Asks the file system.
[[nodiscard]] bool goes_on_from_checkpoint(CheckpointOptions const& options);

/// What a training counts its work in, and where it ends.
struct TrainingLength {
  std::string unit; // "epoch", "step"
  std::int64_t num_units = 0;
  std::int64_t patience = 0; // 0: it never ends early
};

/// Which training it is, and what else a checkpoint must have to go on from there.
struct TrainingIdentity {
  models::Identity parts;
  bool decays_to_the_end =
      false; // the learning rate, by a schedule over the whole training: its length is a part
  models::RequireFits require_progress = {}; // throws UserError; empty: anything goes
};

class Checkpoints {
 public:
  /// Makes the folder of checkpoints if there is none. `weights`: --init-from and --init-skip. Throws UserError if the options
  /// contradict each other or the folder cannot be written. Collective.
  Checkpoints(Context const& context, CheckpointOptions const& options, TrainingLength length,
              WeightOptions const& weights);

  /// True if the training writes checkpoints or goes on from one.
  [[nodiscard]] bool is_on() const { return !options_.checkpoint.empty() || options_.resume != "never"; }
  /// Decides which training this is. Throws UserError if the checkpoint that it is to go on from is of another
  /// one. Before anything is said of the training. Collective.
  void identify(TrainingIdentity identity);

  /// The state := that of the checkpoint to go on from. Returns where that is: the very beginning if there is
  /// none. Collective. Throws UserError.
  template<class T>
  [[nodiscard]] models::TrainProgress resume(models::TrainingState<T>& state);
  /// Removes from the metrics what will be written again, or sets those of another training aside, and says in the
  /// run's record where it goes on. Collective.
  void prepare_metrics(nlohmann::ordered_json& run_record) const;

  /// What the training counts, "epoch" or "step".
  [[nodiscard]] std::string const& unit() const { return length_.unit; }
  [[nodiscard]] bool writes() const { return !options_.checkpoint.empty(); }
  [[nodiscard]] Context const& context() const { return context_; }
  [[nodiscard]] CheckpointOptions const& options() const { return options_; }
  /// Of the checkpoints to write, for the state as it was resumed; the folder is made ready for them. Collective.
  [[nodiscard]] models::CheckpointSettings settings(models::Architecture const& architecture) const;

 private:
  [[nodiscard]] bool was_given(char const* option) const;
  void require_sensible(WeightOptions const& weights) const;
  /// Throws UserError if the folder of checkpoints has those of another training. Collective.
  void require_own_folder(std::string const& training) const;
  /// Those of the folder that are newer than where the training goes on get other names. Collective.
  void set_aside_later_checkpoints() const;
  [[nodiscard]] models::RequireFits fits() const {
    return [this](auto const& path, auto const& facts) { require_fits(path, facts); };
  }
  void require_fits(std::filesystem::path const& path, models::CheckpointFacts const& facts) const;
  /// If the training is longer or shorter than the checkpoint's was: logs what that does to the learning rate, which is `next_rate`
  /// in the next step.
  void describe_length(models::CheckpointFacts const& facts, double next_rate) const;

  Context const& context_;
  CheckpointOptions const& options_;
  TrainingLength length_;
  models::CheckpointInterval interval_;
  TrainingIdentity identity_;
  std::string training_; // a name that no other training has
  std::optional<models::ResumePoint> resumed_;
};

/// A training that goes on from a checkpoint if it is to, writes checkpoints if it is to, and keeps the weights of
/// the best epoch if it is to.
template<class T>
class ResumableRun {
 public:
  /// Resumes. `row_numbers`: of rows that lie in another order than the natural one. All references must outlive
  /// it. Collective. Throws UserError.
  ResumableRun(Checkpoints& checkpoints, pmm::ProcessGrid const& grid, models::RowNumbers const& row_numbers,
               std::vector<models::Parameter<T>> const& parameters, models::ParameterUpdate<T>& update,
               bool keeps_best)
      : checkpoints_(checkpoints) {
    if (!checkpoints.is_on() && !keeps_best) return;
    state_.emplace(grid, parameters, update, row_numbers);
    if (checkpoints.is_on()) start_ = checkpoints.resume(*state_);
  }

  /// trainer.run() until the end or until a StopCondition, and a checkpoint behind the last step. The
  /// architecture is that of the weights. Collective. Throws UserError if it was stopped, and this checkpoint
  /// could not be written.
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

  /// The parameters of the best epoch; null: there is none.
  [[nodiscard]] models::HostCopy<T> const* best() const { return state_ ? state_->best().get() : nullptr; }
  /// What stopped the last run() before its end; empty: nothing.
  [[nodiscard]] std::string const& stopped_by() const { return stopped_by_; }
  /// The signal that did it, or 0.
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

/// "10": so many units; "30min": minutes. Throws UserError for anything else.
[[nodiscard]] models::CheckpointInterval parse_interval(std::string const& text,
                                                        std::string_view unit = "epoch");

/// Parts of an identity: all options but those that any training may change when it goes on (where it runs, and what it
/// reports), and `free_options`, which this kind of training may.
[[nodiscard]] models::Identity identity_of_options(nlohmann::ordered_json const& run_record,
                                                   std::span<std::string_view const> free_options);

/// One of the options that say how long a training is. It may differ if the learning rate does not depend on it, or by
/// --resume-override length; older checkpoints lack it.
[[nodiscard]] models::IdentityPart part_of_length(std::string const& name, std::string const& value);
/// Whether the learning rate decays over the whole training, so that it depends on its length.
[[nodiscard]] bool decays_to_the_end(OptimizerOptions const& options);

/// The most bytes that copies take in this rank's host memory beside the training, of parameters of which it has
/// that many numbers each: of those of the best epoch and of the next best one, and for checkpoints of the
/// parameters and two moments, too.
[[nodiscard]] std::int64_t host_copy_bytes(pmm::StepPlan const& step,
                                           std::vector<std::int64_t> const& lengths, bool writes_checkpoints);

} // namespace orthant::cli
