#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Figures: axes, the content of a figure (panels one below the other over the same x, each with curves of one or several runs), reading
// it from metrics files, and drawing it as SVG. The SVG has a legend above the panels and follows the reader's choice of light or dark
// pages.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace orthant::cli {

// Range of an axis, and its ticks.

/// Largest magnitude of a plotted number, so that sums and differences are finite.
inline constexpr double largest_plotted = 1e300;

/// Smallest and largest of `values`, whose magnitudes are at most largest_plotted. Returns a slightly wider range if they are equal up to
/// rounding, and (0, 1) if there are none.
[[nodiscard]] std::pair<double, double> range_of(std::vector<double> const& values);

enum class Scale : std::uint8_t { linear, logarithmic };

class Axis {
 public:
  /// `begin` must be less than `end`, and greater than 0 on a logarithmic scale. A linear axis gets at least `least_ticks` - 1 ticks and
  /// at most 2.5 times `least_ticks`.
  Axis(double begin, double end, int least_ticks, Scale scale = Scale::linear);
  /// Axis with given ticks.
  Axis(double begin, double end, std::vector<double> ticks, Scale scale);

  /// Position of a value on the axis: 0 at the beginning, 1 at the end.
  [[nodiscard]] double place(double value) const;
  /// Ticks on the axis. Linear: multiples of 1, 2 or 5 times a power of ten. Logarithmic: 1, 2 and 5 times powers of ten, or the powers
  /// alone; if these are fewer than three, as on a linear axis.
  [[nodiscard]] std::vector<double> const& ticks() const { return ticks_; }
  /// Text of a tick, with enough digits to tell ticks apart, and k, M or G for 10^3, 10^6 or 10^9.
  [[nodiscard]] std::string label(double tick) const;

 private:
  double begin_, end_;
  double step_ = 0; // distance of linear ticks
  Scale scale_ = Scale::linear;
  std::vector<double> ticks_;
};

struct Point {
  double x = 0;
  double y = 0;
};

enum class Stroke : std::uint8_t { solid, dashed, dotted };

/// Vertical bar from `low` to `high` at x.
struct Spread {
  double x = 0;
  double low = 0;
  double high = 0;
};

/// The color shows the run, the stroke shows the split.
struct Curve {
  std::size_t run = 0; // of Figure::runs
  std::string split;   // "train", "validation", ..; empty if there is only one
  Stroke stroke = Stroke::solid;
  std::vector<Point> points; // finite, in ascending order of x
  std::vector<Spread> spreads{};
};

struct Panel {
  std::string title; // with the unit
  std::vector<Curve> curves;
  Scale y_scale = Scale::linear; // logarithmic: all y must be positive
  bool begins_at_zero = false;   // linear y axis only
};

struct Figure {
  std::string x_title;
  std::vector<std::string> runs;
  std::vector<Panel> panels;
  Scale x_scale = Scale::linear;
  std::vector<double> x_ticks{}; // empty: chosen from the range
  std::string note{};            // text below the figure
};

// Figures from metrics files (docs/metrics.md): loss, accuracy, and the time of epochs or the throughput.

enum class XAxis : std::uint8_t {
  steps,  // epochs of `train`, steps of `train-lm`
  seconds // seconds of training, without evaluations
};

/// Latest numbers of one run.
struct RunState {
  std::string name;
  std::string status;                                     // "running", "done" or "stopped"
  std::vector<std::pair<std::string, std::string>> facts; // name and value, such as "epoch" and "20 of 100"
};

/// Curves and latest numbers of the runs in metrics files.
struct MetricsFigure {
  Figure figure;
  std::vector<RunState> states;
  std::string
      nothing_yet; // why a file has no curves: it does not exist, or has no epoch or step; empty if all have
  bool has_ended = true; // in every file the last run is done or stopped
};

/// Reads metrics files. A run is everything that one training wrote, also if it was stopped and resumed several times; it is named after
/// its file. A figure of one run shows all splits, a figure of several runs only the training loss and the validation. Numbers that are
/// not finite (null in the files) or larger than largest_plotted are left out. Throws UserError if a file cannot be read or is no metrics
/// file, or if some runs have epochs and others steps.
[[nodiscard]] MetricsFigure read_metrics_figure(std::span<std::string const> paths, XAxis x);

/// Text of an SVG file. Each curve is one `polyline`, with a circle per point if there are few points.
[[nodiscard]] std::string to_svg(Figure const& figure);

/// Reduces the points to about `2 num_columns` at most: the lowest and the highest point of each of `num_columns` equal intervals of x
/// from `begin` to `end`.
[[nodiscard]] std::vector<Point> thinned(std::vector<Point> const& points, double begin, double end,
                                         int num_columns);

} // namespace orthant::cli
