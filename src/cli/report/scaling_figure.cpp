// SPDX-License-Identifier: Apache-2.0
#include "cli/report/scaling_figure.hpp"

#include "cli/machine/units.hpp"
#include "cli/report/tables.hpp"

#include <algorithm>
#include <fmt/ranges.h>
#include <set>

namespace orthant::cli {
namespace {

/// One point for each number of ranks.
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
  if (!oversubscribed.empty()) // emulated clocks do not count the turns that ranks take
    figure.note = fmt::format("{} ranks: {}", fmt::join(oversubscribed, ", "), oversubscribed_note);
  seconds.y_scale = sent.y_scale = Scale::logarithmic;
  efficiency.begins_at_zero = true; // else a loss of few percent looks like a cliff
  figure.x_ticks.assign(ticks.begin(), ticks.end());
  for (auto* panel : {&seconds, &efficiency, &sent})
    if (!panel->curves.empty()) figure.panels.push_back(std::move(*panel));
  return figure;
}

} // namespace orthant::cli
