// SPDX-License-Identifier: Apache-2.0
#include "models/training/checkpoint/checkpointer.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/files/temporary_path.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace orthant::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "checkpoint-";
constexpr std::string_view suffix = ".h5";

std::string name_of(std::int64_t number) {
  return fmt::format("{}{:06}{}", prefix, number, suffix);
}

/// Number of the checkpoint with this file name; nullopt for other names.
std::optional<std::int64_t> number_of(std::string const& name) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  std::int64_t number = 0;
  auto const* const end = name.data() + name.size() - suffix.size();
  auto const read = std::from_chars(name.data() + prefix.size(), end, number);
  if (read.ec != std::errc() || read.ptr != end || number < 1 || name_of(number) != name) return std::nullopt;
  return number;
}

} // namespace

fs::path checkpoint_path(fs::path const& folder, std::int64_t step) {
  return folder / name_of(step);
}

std::vector<std::int64_t> checkpoint_numbers(fs::path const& folder) {
  std::vector<std::int64_t> numbers;
  std::error_code error;
  for (auto const& name : runtime::folder_entries(folder, error))
    if (auto const number = number_of(name)) numbers.push_back(*number);
  if (error && error != std::errc::no_such_file_or_directory)
    runtime::throw_user("cannot read the folder of checkpoints '{}': {}", folder.string(), error.message());
  std::ranges::sort(numbers);
  return numbers;
}

void require_writable_folder(fs::path const& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    runtime::throw_user("cannot make the folder of checkpoints '{}': {}", folder.string(), error.message());
  for (auto const& entry : runtime::folder_entries(folder, error)) {
    auto const name = entry.substr(0, std::min(entry.find(suffix), entry.size()) + suffix.size());
    if (name != entry && number_of(name)) runtime::remove_leftovers(folder / name);
  }
  runtime::require_writable(checkpoint_path(folder, 0), "checkpoint"); // 0: not the number of a checkpoint
}

std::vector<fs::path> set_aside_later_checkpoints(fs::path const& folder, std::int64_t step,
                                                  fs::path const& resumed) {
  std::error_code error;
  auto const numbers = checkpoint_numbers(folder);
  auto const own = std::ranges::find_if(numbers, [&](std::int64_t number) {
    return fs::equivalent(checkpoint_path(folder, number), resumed, error);
  });
  auto const is_here = own != numbers.end();
  // Earlier versions numbered files consecutively. If `resumed` has a larger number than its step, it must not be taken
  // for a later checkpoint.
  auto const is_misnamed = is_here && *own > step;
  auto const newest = is_misnamed ? step - 1 : is_here ? *own : step;
  std::vector<fs::path> names;
  for (auto const number : numbers)
    if (number > newest && (!is_here || number != *own))
      names.push_back(runtime::set_aside(checkpoint_path(folder, number)));
  if (is_misnamed) fs::rename(checkpoint_path(folder, *own), checkpoint_path(folder, step), error);
  if (names.empty() && !is_misnamed) return names;
  auto const left = checkpoint_numbers(folder);
  if (left.empty())
    fs::remove(folder / "latest", error);
  else
    point_latest_to(folder, left.back());
  return names;
}

void point_latest_to(fs::path const& folder, std::int64_t number) {
  // A link cannot be changed, but renaming a new link replaces it atomically.
  auto const latest = folder / "latest";
  runtime::remove_leftovers(latest);
  runtime::TemporaryPath link(runtime::partial_name(latest, runtime::draw_token()));
  std::error_code error;
  fs::create_symlink(name_of(number), link.path(), error);
  if (!error) fs::rename(link.path(), latest, error);
  if (error) return;
  link.keep();
}

void remove_older_checkpoints(fs::path const& folder, std::int64_t newest, std::int64_t num_kept) noexcept {
  try {
    auto numbers = checkpoint_numbers(folder);
    std::erase_if(numbers, [&](std::int64_t number) { return number > newest; });
    auto const num_older = static_cast<std::int64_t>(numbers.size()) - num_kept;
    std::error_code ignored;
    for (std::int64_t i = 0; i < num_older; ++i)
      fs::remove(checkpoint_path(folder, numbers[static_cast<std::size_t>(i)]), ignored);
  } catch (...) { // out of memory
  }
}

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
  std::int64_t is_late = Clock::now() - last_begin_ >= time ? 1 : 0; // clock of rank 0
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
  } catch (runtime::UserError const& error) { // thrown on all ranks
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
  // Rank 0 may still have to rename the file; all ranks wait for that.
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

namespace {

/// Numbers of the checkpoints on rank 0's file system, newest first.
std::vector<std::int64_t> numbers_in(runtime::Communicator const& comm, std::filesystem::path const& folder) {
  std::vector<std::int64_t> numbers;
  runtime::together(comm, [&] {
    if (comm.is_root()) numbers = checkpoint_numbers(folder);
  });
  auto count = static_cast<std::int64_t>(numbers.size());
  runtime::broadcast(runtime::host, comm, std::span(&count, 1), 0);
  numbers.resize(static_cast<std::size_t>(count));
  runtime::broadcast(runtime::host, comm, numbers, 0);
  return {numbers.rbegin(), numbers.rend()};
}

/// Facts of the first of `numbers` that is sound and for which take(point) returns true. Calls damaged(error) for each damaged one.
template<class Take, class Damaged>
std::optional<ResumePoint> first_sound(runtime::Communicator const& comm, std::filesystem::path const& folder,
                                       RequireFits const& require_fits, Take&& take, Damaged&& damaged) {
  for (auto const number : numbers_in(comm, folder)) {
    ResumePoint point{checkpoint_path(folder, number), {}};
    try {
      point.facts = read_checkpoint_facts(comm, point.path);
    } catch (runtime::UserError const& error) {
      damaged(error);
      continue;
    }
    require_fits(point.path, point.facts);
    try {
      take(point);
      return point;
    } catch (runtime::UserError const& error) {
      damaged(error);
    }
  }
  return std::nullopt;
}

} // namespace

std::optional<ResumePoint> find_newest_checkpoint(runtime::Communicator const& comm,
                                                  std::filesystem::path const& folder,
                                                  RequireFits const& require_fits) {
  return first_sound(
      comm, folder, require_fits, [](auto const&) {}, [](auto const&) {});
}

template<class T>
std::optional<ResumePoint> resume_newest(std::filesystem::path const& folder, TrainingState<T>& state,
                                         RequireFits const& require_fits) {
  auto const& comm = state.grid().world();
  auto const fits = [&](auto const& path, auto const& facts) {
    require_fits(path, facts);
    require_fitting_tensors(path, facts, state);
  };
  return first_sound(
      comm, folder, fits, [&](ResumePoint const& point) { load_checkpoint(point.path, point.facts, state); },
      [&](runtime::UserError const& error) {
        if (comm.is_root())
          comm.instruments().log.warn("{}; the checkpoint before it is tried", error.what());
      });
}

template<class T>
ResumePoint resume_from(std::filesystem::path const& path, TrainingState<T>& state,
                        RequireFits const& require_fits) {
  ResumePoint point{path, read_checkpoint_facts(state.grid().world(), path)};
  require_fits(path, point.facts);
  require_fitting_tensors(path, point.facts, state);
  load_checkpoint(path, point.facts, state);
  return point;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::optional<ResumePoint> resume_newest(std::filesystem::path const&, TrainingState<T>&,         \
                                                    RequireFits const&);                                     \
  template ResumePoint resume_from(std::filesystem::path const&, TrainingState<T>&, RequireFits const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
