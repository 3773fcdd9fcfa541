#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What `plan` and `plan-lm` predict of a point: the lists of the steps of all ranks, summed (docs/design.md 2.5).

#include "cli/options/command.hpp"
#include "cli/report/point_result.hpp"

namespace orthant::cli {

/// Of the grid and schedule that the run has chosen. Nothing for mini-batches, which have no list before they are sampled. Throws
/// UserError if the point's data cannot be read, or the machine is not known. On one rank.
[[nodiscard]] std::optional<PointPrediction> predict(Context const& context, Study const& study,
                                                     StudyPoint const& point, PointResult const& result);

} // namespace orthant::cli
