#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// --checkpoint and --resume of a training: which training it is, where it goes on, and its run.

#include "cli/options/command.hpp"
#include "cli/training/stop_condition.hpp"
#include "cli/training/train_options.hpp"
#include "graph/store/store_reader.hpp"
#include "models/checkpoint/checkpointer.hpp"
#include "models/checkpoint/resume.hpp"
#include "models/core/vertex_order.hpp"
#include "models/plan/gcn_settings.hpp"

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

namespace orthant::cli {

/// Whether there is a checkpoint that --resume begins with. Asks the file system.
[[nodiscard]] bool goes_on_from_checkpoint(TrainOptions const& options);

class Checkpoints {
 public:
  /// Makes the folder of checkpoints if there is none. Throws UserError if the options contradict each other or
  /// the folder cannot be written. Collective.
  Checkpoints(Context const& context, TrainOptions const& options);

  /// True if the training writes checkpoints or goes on from one.
  [[nodiscard]] bool is_on() const { return !options_.checkpoint.empty() || options_.resume != "never"; }
  /// Decides which training this is. Throws UserError if the checkpoint that it is to go on from is of another
  /// one. Before anything is said of the training. Collective.
  void identify(pmm::ProcessGrid const& grid, graph::GraphStore const& store);

  /// The state := that of the checkpoint to go on from. Returns where that is: the very beginning if there is
  /// none. Collective. Throws UserError.
  template<class T>
  [[nodiscard]] models::TrainProgress resume(models::TrainingState<T>& state);
  /// Removes from the metrics what will be written again, and says in the run's record where it goes on.
  /// Collective.
  void prepare_metrics(nlohmann::ordered_json& run_record) const;

  [[nodiscard]] bool writes() const { return !options_.checkpoint.empty(); }
  [[nodiscard]] Context const& context() const { return context_; }
  [[nodiscard]] TrainOptions const& options() const { return options_; }
  /// Of the checkpoints to write, for the state as it was resumed. Collective.
  [[nodiscard]] models::CheckpointSettings settings(models::Architecture const& architecture) const;

 private:
  [[nodiscard]] bool was_given(char const* option) const;
  void require_sensible() const;
  /// Throws UserError if the folder of checkpoints has those of another training. Collective.
  void require_own_folder(std::string const& training) const;
  [[nodiscard]] models::RequireFits fits() const {
    return [this](auto const& path, auto const& facts) { require_fits(path, facts); };
  }
  void require_fits(std::filesystem::path const& path, models::CheckpointFacts const& facts) const;

  Context const& context_;
  TrainOptions const& options_;
  models::CheckpointInterval interval_;
  models::Identity identity_;
  std::string training_; // a name that no other training has
  std::optional<models::ResumePoint> resumed_;
};

/// A training that goes on from a checkpoint if it is to, writes checkpoints if it is to, and keeps the weights of
/// the best epoch if it is to.
template<class T>
class ResumableRun {
 public:
  /// Resumes. All references must outlive it. Collective. Throws UserError.
  ResumableRun(Checkpoints& checkpoints, pmm::ProcessGrid const& grid, graph::GraphStore const& store,
               std::vector<models::Parameter<T>> const& parameters, models::ParameterUpdate<T>& update,
               bool keeps_best)
      : checkpoints_(checkpoints) {
    if (!checkpoints.is_on() && !keeps_best) return;
    state_.emplace(grid, parameters, update, models::original_ids_of(store));
    if (checkpoints.is_on()) start_ = checkpoints.resume(*state_);
  }

  /// trainer.run() until the end or until a StopCondition, and a checkpoint behind the last step. The
  /// architecture is that of the weights. Collective. Throws UserError if it was stopped, and this checkpoint
  /// could not be written.
  template<class Trainer>
  models::TrainResult run(Trainer& trainer, std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                          models::Architecture const& architecture) {
    if (!checkpoints_.writes()) {
      StopCondition stop(checkpoints_.context());
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
    StopCondition stop(checkpoints_.context(), options.max_walltime);
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

/// "10": epochs; "30min": minutes. Throws UserError for anything else.
[[nodiscard]] models::CheckpointInterval parse_interval(std::string const& text);

/// The most bytes that copies take in this rank's host memory beside the training: of the parameters of the best
/// epoch and of the next best one, and for checkpoints of the parameters and two moments, too.
template<class T>
[[nodiscard]] std::int64_t host_copy_bytes(pmm::ProcessGrid const& grid, models::GcnPlan const& plan,
                                           models::GcnSettings const& settings, bool writes_checkpoints);

} // namespace orthant::cli
