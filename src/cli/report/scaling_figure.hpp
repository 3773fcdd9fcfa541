#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// An experiment as a figure over the number of ranks: seconds with their quartiles, beside what was predicted and what would be ideal;
// efficiency; and sent bytes.

#include "cli/plot/figure.hpp"
#include "cli/report/scaling.hpp"

namespace orthant::cli {

/// Of a number of ranks with several grids the fastest one is drawn.
[[nodiscard]] Figure figure_of_experiment(std::vector<ScalingCurve> const& curves,
                                          std::string const& experiment);

} // namespace orthant::cli
