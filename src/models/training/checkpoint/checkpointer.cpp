// SPDX-License-Identifier: Apache-2.0
#include "models/training/checkpoint/checkpointer.hpp"

#include "models/training/checkpoint/checkpoint_folder.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <bit>
#include <utility>

namespace orthant::models {

template<class T>
Checkpointer<T>::Checkpointer(TrainingState<T>& state, CheckpointSettings settings,
                              TrainProgress const& start)
    : state_(state),
      settings_(std::move(settings)),
      comm_(state.grid().world().split(0, state.grid().world().rank(), "checkpoint")),
      best_epoch_(state.best() ? start.best.epoch : 0),
      saved_at_(start.epoch, start.step) {}

template<class T>
void Checkpointer<T>::after_step(TrainProgress const& progress) {
  if (is_writing_ && std::has_single_bit(++num_steps_since_)) {
    std::int64_t const is_busy = thread_.is_done() ? 0 : 1;
    if (runtime::all_reduced(comm_, is_busy, runtime::Reduction::max) == 0) complete();
  }
  if (progress.best.epoch != best_epoch_) {
    state_.keep_best();
    best_epoch_ = progress.best.epoch;
  }
  if (is_due(progress)) save(progress);
}

template<class T>
bool Checkpointer<T>::is_due(TrainProgress const& progress) {
  auto const& [epochs, time] = settings_.interval;
  if (epochs > 0) return progress.step == 0 && (progress.epoch - 1) % epochs == 0;
  std::int64_t is_late = Clock::now() - last_begin_ >= time ? 1 : 0; // by the clock of rank 0
  runtime::broadcast(runtime::host, comm_, std::span(&is_late, 1), 0);
  return is_late != 0;
}

template<class T>
void Checkpointer<T>::save(TrainProgress const& progress) {
  if (saved_at_ == std::pair(progress.epoch, progress.step)) return;
  finish();
  begin(progress);
  if (!settings_.is_asynchronous) finish();
}

template<class T>
void Checkpointer<T>::begin(TrainProgress const& progress) {
  last_begin_ = Clock::now();
  has_failed_ = false;
  saved_at_ = {progress.epoch, progress.step};
  auto facts = settings_.facts;
  facts.progress = progress;
  step_ = facts.num_steps = state_.update().num_steps();
  facts.learning_rate = state_.update().learning_rate(step_);
  try {
    output_ = std::make_unique<CheckpointOutput<T>>(comm_, checkpoint_path(settings_.folder, step_),
                                                    std::move(facts), state_, settings_.architecture);
  } catch (runtime::UserError const& error) { // on all ranks
    give_up(error);
    return;
  }
  is_writing_ = true;
  num_steps_since_ = 0;
  run_in_background([this] { output_->write(); });
}

template<class T>
void Checkpointer<T>::complete() {
  is_writing_ = false;
  try {
    runtime::together(comm_, [&] { thread_.wait(); });
  } catch (runtime::UserError const& error) {
    output_.reset();
    give_up(error);
    return;
  }
  last_seconds_ = std::chrono::duration<double>(Clock::now() - last_begin_).count();
  output_->agree();
  if (!comm_.is_root()) {
    output_->leave_to_root();
    output_.reset();
    return;
  }
  run_in_background([this, step = step_] {
    if (settings_.before_commit) settings_.before_commit();
    output_->commit();
    point_latest_to(settings_.folder, step);
    remove_older_checkpoints(settings_.folder, step, settings_.num_kept);
  });
}

template<class T>
void Checkpointer<T>::finish() {
  if (is_writing_) complete();
  // Rank 0 may still have to give the file its name, and nobody goes on before that.
  runtime::together(comm_, [&] {
    if (!thread_.is_started()) return;
    try {
      thread_.wait();
      has_warned_ = false;
    } catch (runtime::UserError const& error) {
      give_up(error);
    }
    output_.reset();
  });
}

template<class T>
void Checkpointer<T>::run_in_background(std::function<void()> job) {
  job_ = std::move(job);
  thread_.start();
}

template<class T>
void Checkpointer<T>::give_up(std::exception const& reason) {
  if (!has_warned_ && comm_.is_root())
    comm_.instruments().log.warn("{}; the training goes on without this checkpoint", reason.what());
  has_warned_ = has_failed_ = true;
}

template<class T>
bool Checkpointer<T>::has_failed() const {
  return runtime::all_reduced(comm_, std::int64_t{has_failed_ ? 1 : 0}, runtime::Reduction::max) != 0;
}

template class Checkpointer<float>;
template class Checkpointer<double>;

} // namespace orthant::models
