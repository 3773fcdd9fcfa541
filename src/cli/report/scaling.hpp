#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Scaling curves of the points of a study. With t(P) the median on P ranks and P_0 the smallest number of ranks of the curve:
//
//   strong   speed-up = t(P_0) / t(P)            efficiency = speed-up P_0 / P
//   weak     speed-up = (P / P_0) t(P_0) / t(P)  efficiency = t(P_0) / t(P)

#include "cli/report/figure.hpp"
#include "cli/report/point_result.hpp"

namespace orthant::cli {

/// All repeats with equal settings.
struct ScalingPoint {
  std::int64_t ranks = 1;
  std::string grid, schedule;
  std::int64_t num_repeats = 0;
  bool is_oversubscribed = false; // true if any repeat was; then seconds are meaningless
  double seconds = 0;             // median over all epochs or steps of all repeats
  double low = 0, high = 0;       // quartiles of the same seconds
  double speed_up = 1, efficiency = 1;
  std::map<std::string, double> phases; // seconds, medians of the repeats
  double sent_bytes = 0;
  double memory_bytes = 0;
  std::optional<PointPrediction> predicted;
};

struct ScalingCurve {
  std::string experiment, name;
  bool is_weak = false;
  std::string unit; // "epoch" or "step"
  std::string emulated;
  std::vector<ScalingPoint> points; // sorted by ranks, then by seconds
};

/// Curves in the order of the results; points without metrics are left out. Emulated and real clocks give separate curves.
[[nodiscard]] std::vector<ScalingCurve> curves_of(std::vector<PointResult> const& results);

/// Names of the experiments in the order of the curves, without repeats.
[[nodiscard]] std::vector<std::string> experiments_of(std::vector<ScalingCurve> const& curves);

// Figure of an experiment over the number of ranks: seconds with their quartiles, the predicted and the ideal seconds; efficiency; sent
// bytes.

/// If a number of ranks has several grids, only the fastest one is drawn.
[[nodiscard]] Figure figure_of_experiment(std::vector<ScalingCurve> const& curves,
                                          std::string const& experiment);

} // namespace orthant::cli
