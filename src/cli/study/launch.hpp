#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Starts the points of a study that have no result yet, in jobs of a scheduler or one after the other on this machine.

#include "cli/study/scheduler.hpp"
#include "cli/study/study_file.hpp"
#include "cli/study/study_folder.hpp"

#include <functional>
#include <span>
#include <string_view>

namespace orthant::cli {

// Templates of batch job scripts: built-in ones (scripts/slurm/study_*.sh, scripts/flux/study_*.sh), named by machine, and scripts of
// users. A script receives a list of points; a task of a Slurm array runs one of them, a Flux job runs all.

struct JobTemplate {
  std::string_view name;
  std::string_view text;
};
[[nodiscard]] std::span<JobTemplate const> built_in_templates();

/// Text of the built-in template `machine`, or of the script at that path. Throws UserError if there is none.
[[nodiscard]] std::string template_of(Study const& study, std::string const& machine);
/// Scheduler of a script: Flux if it has a directive `#flux:`, otherwise Slurm.
[[nodiscard]] Scheduler scheduler_of(std::string_view script);

// Script of one point. It needs only a shell and the program. It publishes the metrics by renaming the file, so even if the job is killed,
// a result is either complete or missing. It never replaces an existing result.

/// Text of the script that runs a point. `program`: absolute path of the program.
[[nodiscard]] std::string point_script(Study const& study, StudyPoint const& point,
                                       std::string const& program);

/// Points to start: all without a result whose job neither waits nor runs. Failed points are started again.
[[nodiscard]] std::vector<StudyPoint> points_to_start(std::vector<StudyPoint> const& points,
                                                      std::vector<PointStatus> const& states);

/// Writes the scripts of the points and submits them, one array per number of nodes. Returns the jobs. Throws UserError if the scheduler
/// refuses one; the jobs before it stay submitted.
[[nodiscard]] std::vector<BatchJob> submit_points(Study const& study, StudyFolder const& folder,
                                                  std::vector<StudyPoint> const& points,
                                                  std::string const& machine);

/// Runs the points one after the other, started by `launcher` followed by the number of ranks, also with more ranks than cores. Calls
/// `report(point, status)` after each. Returns the number of points that failed.
[[nodiscard]] int run_points_here(Study const& study, StudyFolder const& folder,
                                  std::vector<StudyPoint> const& points, std::string const& launcher,
                                  std::function<void(StudyPoint const&, int status)> const& report);

} // namespace orthant::cli
