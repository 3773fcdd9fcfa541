#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Starts the points of a study that are still to do, in jobs of a scheduler or one after the other on this machine.

#include "cli/study/study_folder.hpp"

#include <functional>

namespace orthant::cli {

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
