#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Scripts of batch jobs that run points: those that come with Orthant (scripts/slurm/study_*.sh, scripts/flux/study_*.sh), by the
// names of their machines, and those of users. A script is called with a list of points, of which a task of an array runs its own
// and a job under Flux all.

#include "cli/study/scheduler.hpp"
#include "cli/study/study_file.hpp"

#include <span>
#include <string_view>

namespace orthant::cli {

struct JobTemplate {
  std::string_view name;
  std::string_view text;
};
[[nodiscard]] std::span<JobTemplate const> built_in_templates();

/// The text of the template that `machine` names, or of that script. Throws UserError if there is none.
[[nodiscard]] std::string template_of(Study const& study, std::string const& machine);
/// By the lines that ask for resources.
[[nodiscard]] Scheduler scheduler_of(std::string_view script);

} // namespace orthant::cli
