#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The script of one point. It runs where the job is, so it needs nothing but a shell and the program, and publishes its metrics by
// renaming them: a result is there whole or not at all, however the job ends, and is never replaced.

#include "cli/study/points.hpp"

namespace orthant::cli {

/// `program` is the absolute path of the program.
[[nodiscard]] std::string point_script(Study const& study, StudyPoint const& point,
                                       std::string const& program);

} // namespace orthant::cli
