#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Starts the points of a study that are still to do, in jobs of a scheduler or one after the other on this machine.

#include "cli/study/scheduler.hpp"
#include "cli/study/study_file.hpp"
#include "cli/study/study_folder.hpp"

#include <functional>
#include <span>
#include <string_view>

namespace orthant::cli {

// Scripts of batch jobs that run points: those that come with Orthant (scripts/slurm/study_*.sh, scripts/flux/study_*.sh), by the
// names of their machines, and those of users. A script is called with a list of points, of which a task of an array runs its own
// and a job under Flux all.

struct JobTemplate {
  std::string_view name;
  std::string_view text;
};
[[nodiscard]] std::span<JobTemplate const> built_in_templates();

/// The text of the template that `machine` names, or of that script. Throws UserError if there is none.
[[nodiscard]] std::string template_of(Study const& study, std::string const& machine);
/// By the lines that ask for resources.
[[nodiscard]] Scheduler scheduler_of(std::string_view script);

// The script of one point. It runs where the job is, so it needs nothing but a shell and the program, and publishes its metrics by
// renaming them: a result is there whole or not at all, however the job ends, and is never replaced.

/// `program` is the absolute path of the program.
[[nodiscard]] std::string point_script(Study const& study, StudyPoint const& point,
                                       std::string const& program);

/// What is to be started: every point that has no result and whose job does not wait or run. Those that failed are tried again.
[[nodiscard]] std::vector<StudyPoint> points_to_start(std::vector<StudyPoint> const& points,
                                                      std::vector<PointStatus> const& states);

/// Writes their scripts and submits them, one array per number of nodes. Returns the jobs. Throws UserError if the scheduler refuses
/// one; those before it are submitted.
[[nodiscard]] std::vector<BatchJob> submit_points(Study const& study, StudyFolder const& folder,
                                                  std::vector<StudyPoint> const& points,
                                                  std::string const& machine);

/// Runs them with `launcher` before the number of ranks, also on more ranks than there are cores. `report(point, status)` is called after
/// each. Returns how many failed.
[[nodiscard]] int run_points_here(Study const& study, StudyFolder const& folder,
                                  std::vector<StudyPoint> const& points, std::string const& launcher,
                                  std::function<void(StudyPoint const&, int status)> const& report);

} // namespace orthant::cli
