#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a figure shows, before it is drawn: panels below one another over the same x, and in each curves of one or
// several runs.
//
// A figure as an SVG of its own: panels with axes below one another, a legend above. It follows the reader's choice of light or dark
// pages.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace orthant::cli {

// The range of an axis, and the numbers that are written on it.

/// Sums and differences of such numbers are finite.
inline constexpr double largest_plotted = 1e300;

/// From the least to the largest of `values`, whose magnitudes are at most largest_plotted; where these are equal but for rounding, a
/// little wider on both sides. From 0 to 1 if there are none.
[[nodiscard]] std::pair<double, double> range_of(std::vector<double> const& values);

enum class Scale : std::uint8_t { linear, logarithmic };

class Axis {
 public:
  /// `begin` is less than `end`, and above 0 if the scale is logarithmic. If linear, `least_ticks` numbers or one less, and at most 2.5
  /// times as many.
  Axis(double begin, double end, int least_ticks, Scale scale = Scale::linear);
  /// With these numbers.
  Axis(double begin, double end, std::vector<double> ticks, Scale scale);

  /// 0 at the begin, 1 at the end.
  [[nodiscard]] double place(double value) const;
  /// Multiples of 1, 2 or 5 times a power of ten that lie on the axis; of a logarithmic one 1, 2 and 5 times powers of ten, or the
  /// powers alone, unless these are fewer than three.
  [[nodiscard]] std::vector<double> const& ticks() const { return ticks_; }
  /// With as many digits as tell ticks apart, and k, M or G for thousands, millions and milliards.
  [[nodiscard]] std::string label(double tick) const;

 private:
  double begin_, end_;
  double step_ = 0; // of ticks that are equally far apart
  Scale scale_ = Scale::linear;
  std::vector<double> ticks_;
};

struct Point {
  double x = 0;
  double y = 0;
};

enum class Stroke : std::uint8_t { solid, dashed, dotted };

/// From low to high at x.
struct Spread {
  double x = 0;
  double low = 0;
  double high = 0;
};

/// The color says of which run it is, the stroke of what.
struct Curve {
  std::size_t run = 0; // of Figure::runs
  std::string split;   // "train", "validation", ..; empty: there is but one
  Stroke stroke = Stroke::solid;
  std::vector<Point> points; // finite, x does not fall
  std::vector<Spread> spreads{};
};

struct Panel {
  std::string title; // with the unit
  std::vector<Curve> curves;
  Scale y_scale = Scale::linear; // logarithmic: all y are above 0
  bool begins_at_zero = false;   // the axis of y, if it is linear
};

struct Figure {
  std::string x_title;
  std::vector<std::string> runs;
  std::vector<Panel> panels;
  Scale x_scale = Scale::linear;
  std::vector<double> x_ticks{}; // empty: as the range suggests
  std::string note{};            // below it
};

// From metrics files (docs/metrics.md) to a figure: loss, accuracy, and the time of epochs or the throughput.

enum class XAxis : std::uint8_t {
  steps,  // epochs of `train`, steps of `train-lm`
  seconds // of training, without evaluations
};

/// A run is what one training wrote, however often it was stopped and went on. It is named after its file. Figures of one run show
/// all splits, others the loss of training and the validation. A number that was not finite, which files have as null, or that is larger than largest_plotted is left
/// out. Throws UserError if a file cannot be read or is no metrics file, if there is no epoch or step, and if some
/// runs have epochs and others steps.
[[nodiscard]] Figure figure_of_metrics(std::span<std::string const> paths, XAxis x);

/// The latest numbers of one run.
struct RunState {
  std::string name;
  bool is_done = false;
  std::vector<std::pair<std::string, std::string>> facts; // name and value, such as "epoch" and "20 of 100"
};

/// The latest numbers of every run of the files. Throws UserError as figure_of_metrics() does.
[[nodiscard]] std::vector<RunState> states_of_metrics(std::span<std::string const> paths);

/// The text of the file. Each curve is one `polyline`, with a circle per point if these are few.
[[nodiscard]] std::string to_svg(Figure const& figure);

/// At most about `2 num_columns` of the points: the lowest and the highest of each of `num_columns` equal parts of x, from
/// `begin` to `end`.
[[nodiscard]] std::vector<Point> thinned(std::vector<Point> const& points, double begin, double end,
                                         int num_columns);

} // namespace orthant::cli
