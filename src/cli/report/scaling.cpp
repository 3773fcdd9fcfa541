// SPDX-License-Identifier: Apache-2.0
#include "cli/report/scaling.hpp"

#include <algorithm>
#include <tuple>

namespace orthant::cli {
namespace {

ScalingPoint point_of(std::vector<PointResult const*> const& repeats) {
  ScalingPoint point;
  auto const& first = *repeats.front();
  point.ranks = first.ranks;
  point.grid = first.grid;
  point.schedule = first.schedule;
  point.num_repeats = std::ssize(repeats);
  std::vector<double> seconds, sent;
  std::map<std::string, std::vector<double>> phases;
  for (auto const* repeat : repeats) {
    seconds.insert(seconds.end(), repeat->seconds.begin(), repeat->seconds.end());
    for (auto const& [phase, value] : repeat->phases)
      phases[phase].push_back(value);
    sent.push_back(repeat->sent_bytes);
    point.is_oversubscribed = point.is_oversubscribed || repeat->is_oversubscribed;
    point.memory_bytes = std::max(point.memory_bytes, repeat->memory_bytes);
    if (repeat->predicted) point.predicted = repeat->predicted;
  }
  point.seconds = quantile_of(seconds, 0.5);
  point.low = quantile_of(seconds, 0.25);
  point.high = quantile_of(seconds, 0.75);
  point.sent_bytes = quantile_of(sent, 0.5);
  for (auto const& [phase, values] : phases)
    point.phases[phase] = quantile_of(values, 0.5);
  return point;
}

void compare_with_first(ScalingCurve& curve) {
  auto const& first = curve.points.front();
  auto const first_seconds = first.seconds;
  auto const first_ranks = static_cast<double>(first.ranks);
  for (auto& point : curve.points) {
    auto const growth = static_cast<double>(point.ranks) / first_ranks;
    auto const ratio = first_seconds / point.seconds;
    point.speed_up = curve.is_weak ? growth * ratio : ratio;
    point.efficiency = point.speed_up / growth;
  }
}

} // namespace

std::vector<ScalingCurve> curves_of(std::vector<PointResult> const& results) {
  using Settings = std::tuple<std::int64_t, std::string, std::string>;
  std::vector<ScalingCurve> curves;
  std::vector<std::map<Settings, std::vector<PointResult const*>>> points;
  for (auto const& result : results) {
    if (!result.is_done()) continue;
    auto found = std::ranges::find_if(curves, [&](ScalingCurve const& curve) {
      return curve.experiment == result.experiment && curve.name == result.curve &&
             curve.emulated == result.emulated;
    });
    if (found == curves.end()) {
      curves.push_back({result.experiment, result.curve, result.is_weak, result.unit(), result.emulated, {}});
      points.emplace_back();
      found = curves.end() - 1;
    }
    points[static_cast<std::size_t>(found - curves.begin())][{result.ranks, result.grid, result.schedule}]
        .push_back(&result);
  }
  for (std::size_t i = 0; i < curves.size(); ++i) {
    for (auto const& [settings, repeats] : points[i])
      curves[i].points.push_back(point_of(repeats));
    std::ranges::stable_sort(curves[i].points, {}, [](ScalingPoint const& point) {
      return std::tuple(point.ranks, point.seconds);
    });
    compare_with_first(curves[i]);
  }
  return curves;
}

std::vector<std::string> experiments_of(std::vector<ScalingCurve> const& curves) {
  std::vector<std::string> names;
  for (auto const& curve : curves)
    if (std::ranges::find(names, curve.experiment) == names.end()) names.push_back(curve.experiment);
  return names;
}

} // namespace orthant::cli
