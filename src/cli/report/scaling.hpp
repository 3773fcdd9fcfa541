#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// From points to curves. With t(P) the median on P ranks and P_0 the fewest of the curve:
//
//   strong   speed-up = t(P_0) / t(P)            efficiency = speed-up P_0 / P
//   weak     speed-up = (P / P_0) t(P_0) / t(P)  efficiency = t(P_0) / t(P)

#include "cli/report/figure.hpp"
#include "cli/report/point_result.hpp"

namespace orthant::cli {

/// All repeats of equal settings.
struct ScalingPoint {
  std::int64_t ranks = 1;
  std::string grid, schedule;
  std::int64_t num_repeats = 0;
  bool is_oversubscribed = false; // one of them: seconds mean nothing
  double seconds = 0;             // median over all epochs or steps of all repeats
  double low = 0, high = 0;       // their quartiles
  double speed_up = 1, efficiency = 1;
  std::map<std::string, double> phases; // medians of the repeats, seconds
  double sent_bytes = 0;
  double memory_bytes = 0;
  std::optional<PointPrediction> predicted;
};

struct ScalingCurve {
  std::string experiment, name;
  bool is_weak = false;
  std::string unit; // "epoch" or "step"
  std::string emulated;
  std::vector<ScalingPoint> points; // by ranks; of one number of ranks the fastest grid first
};

/// In the order of the results, those without metrics left out. Seconds of a clock that is emulated and of one that is not make
/// curves of their own.
[[nodiscard]] std::vector<ScalingCurve> curves_of(std::vector<PointResult> const& results);

/// The names of experiments in the order of the curves, each once.
[[nodiscard]] std::vector<std::string> experiments_of(std::vector<ScalingCurve> const& curves);

// An experiment as a figure over the number of ranks: seconds with their quartiles, beside what was predicted and what would be ideal;
// efficiency; and sent bytes.

/// Of a number of ranks with several grids the fastest one is drawn.
[[nodiscard]] Figure figure_of_experiment(std::vector<ScalingCurve> const& curves,
                                          std::string const& experiment);

} // namespace orthant::cli
