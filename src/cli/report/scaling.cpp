// SPDX-License-Identifier: Apache-2.0
#include "cli/report/scaling.hpp"

#include "cli/machine/units.hpp"
#include "cli/report/tables.hpp"

#include <algorithm>
#include <fmt/ranges.h>
#include <set>
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

namespace {

/// Fastest point for each number of ranks.
std::vector<ScalingPoint> fastest_of(ScalingCurve const& curve) {
  std::vector<ScalingPoint> fastest;
  for (auto const& point : curve.points)
    if (fastest.empty() || fastest.back().ranks != point.ranks) fastest.push_back(point);
  return fastest;
}

void add(Panel& panel, std::size_t run, std::string const& split, Stroke stroke, std::vector<Point> points,
         std::vector<Spread> spreads = {}) {
  if (!points.empty()) panel.curves.push_back({run, split, stroke, std::move(points), std::move(spreads)});
}

} // namespace

Figure figure_of_experiment(std::vector<ScalingCurve> const& curves, std::string const& experiment) {
  Figure figure;
  figure.x_title = "ranks";
  figure.x_scale = Scale::logarithmic;
  std::set<double> ticks;
  std::set<std::int64_t> oversubscribed;
  Panel seconds, efficiency, sent;
  for (auto const& curve : curves) {
    if (curve.experiment != experiment) continue;
    auto const run = figure.runs.size();
    figure.runs.push_back(curve.name);
    figure.note = clock_note(curve.emulated);
    seconds.title = "seconds per " + curve.unit;
    efficiency.title = curve.is_weak ? "efficiency of weak scaling, %" : "efficiency of strong scaling, %";
    sent.title = "MB sent by all ranks per " + curve.unit;
    std::vector<Point> measured, predicted, ideal, efficiencies, bytes;
    std::vector<Spread> spreads;
    auto const points = fastest_of(curve);
    for (auto const& point : points) {
      auto const ranks = static_cast<double>(point.ranks);
      ticks.insert(ranks);
      if (point.is_oversubscribed) oversubscribed.insert(point.ranks);
      measured.push_back({ranks, point.seconds});
      spreads.push_back({ranks, point.low, point.high});
      if (point.predicted) predicted.push_back({ranks, point.predicted->seconds});
      auto const growth = ranks / static_cast<double>(points.front().ranks);
      ideal.push_back({ranks, points.front().seconds / (curve.is_weak ? 1 : growth)});
      efficiencies.push_back({ranks, percent * point.efficiency});
      if (point.sent_bytes > 0) bytes.push_back({ranks, point.sent_bytes / mega});
    }
    add(seconds, run, "measured", Stroke::solid, std::move(measured), std::move(spreads));
    add(seconds, run, "predicted", Stroke::dashed, std::move(predicted));
    add(seconds, run, "ideal", Stroke::dotted, std::move(ideal));
    add(efficiency, run, "measured", Stroke::solid, std::move(efficiencies));
    add(sent, run, "measured", Stroke::solid, std::move(bytes));
  }
  if (!oversubscribed.empty()) // never the case for emulated clocks
    figure.note = fmt::format("{} ranks: {}", fmt::join(oversubscribed, ", "), oversubscribed_note);
  seconds.y_scale = sent.y_scale = Scale::logarithmic;
  efficiency.begins_at_zero = true; // so that small losses of efficiency look small
  figure.x_ticks.assign(ticks.begin(), ticks.end());
  for (auto* panel : {&seconds, &efficiency, &sent})
    if (!panel->curves.empty()) figure.panels.push_back(std::move(*panel));
  return figure;
}

} // namespace orthant::cli
