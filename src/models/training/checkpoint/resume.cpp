// SPDX-License-Identifier: Apache-2.0
#include "models/training/checkpoint/resume.hpp"

#include "models/training/checkpoint/checkpoint_folder.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

namespace orthant::models {
namespace {

/// As rank 0 finds them, newest first.
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

/// The facts of the first of `numbers` for which they are sound and take(point) is true. What is damaged is
/// handed to damaged(error).
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
