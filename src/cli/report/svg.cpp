// SPDX-License-Identifier: Apache-2.0
#include "cli/report/figure.hpp"

#include "tokens/vocabulary.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <string_view>

namespace orthant::cli {
namespace {

// Sizes in pixels.
constexpr double width = 860, left = 76, right = 20, plot_width = width - left - right;
constexpr double panel_height = 200, title_height = 34, numbers_height = 26;
constexpr double letter_width = 8.2, legend_line = 22, legend_sample = 26, legend_gap = 18;
constexpr std::size_t most_circles = 60;

/// Escapes text for XML; replaces control characters and invalid UTF-8.
std::string escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    auto const [code_point, num_bytes] = tokens::first_character(text);
    if (num_bytes == 0 || code_point < 0x20 || code_point == 0x7f)
      result += '?';
    else if (code_point == '&')
      result += "&amp;";
    else if (code_point == '<')
      result += "&lt;";
    else if (code_point == '>')
      result += "&gt;";
    else
      result += text.substr(0, num_bytes);
    text.remove_prefix(std::max<std::size_t>(num_bytes, 1));
  }
  return result;
}

double text_width(std::string const& text) {
  return letter_width * static_cast<double>(std::ranges::count_if(
                            text, [](char c) { return !tokens::continues_character(c); }));
}

char const* dashes(Stroke stroke) {
  switch (stroke) {
  case Stroke::solid:
    return "";
  case Stroke::dashed:
    return " stroke-dasharray=\"7 4\"";
  case Stroke::dotted:
    return " stroke-dasharray=\"1.5 3.5\"";
  }
  return "";
}

/// Style sheet. Hues of successive runs differ by the golden angle, so that any number of runs can be distinguished.
std::string style(std::size_t num_runs) {
  std::string light, dark;
  for (std::size_t i = 0; i < num_runs; ++i) {
    auto const hue = static_cast<int>(std::fmod(210 + 137.5 * static_cast<double>(i), 360));
    light += fmt::format(".r{0}{{stroke:hsl({1},75%,40%)}}.f{0}{{fill:hsl({1},75%,40%)}}", i, hue);
    dark += fmt::format(".r{0}{{stroke:hsl({1},75%,65%)}}.f{0}{{fill:hsl({1},75%,65%)}}", i, hue);
  }
  return fmt::format("<style>\n"
                     "text{{font-family:sans-serif;font-size:13px;fill:#24292f}}\n"
                     "polyline{{fill:none;stroke-width:1.8;stroke-linejoin:round}}.many{{stroke-width:1}}\n"
                     ".sample{{stroke-width:2}}.ink{{stroke:#24292f}}\n"
                     ".page{{fill:#fff}}.grid{{stroke:#d8dee4}}.axis{{stroke:#6e7781}}{}\n"
                     "@media (prefers-color-scheme:dark){{text{{fill:#e6edf3}}.ink{{stroke:#e6edf3}}"
                     ".page{{fill:#0d1117}}.grid{{stroke:#30363d}}.axis{{stroke:#8b949e}}{}}}\n"
                     "</style>\n",
                     light, dark);
}

std::string text_at(double x, double y, char const* anchor, std::string const& text, char const* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, std::string const& css_class,
                 char const* more = "") {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"{}/>\n", x1,
                     y1, x2, y2, css_class, more);
}

struct LegendEntry {
  std::string css_class, text;
  Stroke stroke;
};

/// Legend entries: runs if there are several, and strokes if they have several meanings.
std::vector<LegendEntry> legend_of(Figure const& figure) {
  std::vector<LegendEntry> entries;
  for (std::size_t i = 0; i < figure.runs.size(); ++i)
    entries.push_back({fmt::format("r{}", i), figure.runs[i], Stroke::solid});
  for (auto const& panel : figure.panels)
    for (auto const& curve : panel.curves)
      if (!curve.split.empty() && std::ranges::none_of(entries, [&](auto const& entry) {
            return entry.css_class == "ink" && entry.text == curve.split;
          }))
        entries.push_back({"ink", curve.split, curve.stroke});
  return entries;
}

/// Draws the legend, or only measures it if `svg` is null. Returns its height.
double draw_legend(std::vector<LegendEntry> const& entries, std::string* svg) {
  auto x = left, y = legend_line;
  for (auto const& entry : entries) {
    auto const needed = legend_sample + 6 + text_width(entry.text);
    if (x > left && x + needed > width - right) {
      x = left;
      y += legend_line;
    }
    if (svg != nullptr) {
      *svg += line(x, y - 4, x + legend_sample, y - 4, entry.css_class + " sample", dashes(entry.stroke));
      *svg += text_at(x + legend_sample + 6, y, "start", entry.text);
    }
    x += needed + legend_gap;
  }
  return y + legend_line / 2;
}

std::string curve_at(Curve const& curve, Axis const& x_axis, Axis const& y_axis, double top) {
  auto const begin_to_end =
      thinned(curve.points, curve.points.front().x, curve.points.back().x, static_cast<int>(plot_width));
  auto const are_few = begin_to_end.size() <= most_circles;
  std::string points, circles;
  for (auto const& point : begin_to_end) {
    auto const x = left + plot_width * x_axis.place(point.x);
    auto const y = top + panel_height * (1 - y_axis.place(point.y));
    points += fmt::format("{:.2f},{:.2f} ", x, y);
    if (are_few)
      circles +=
          fmt::format("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"2.2\" class=\"f{}\"/>\n", x, y, curve.run);
  }
  for (auto const& [x, low, high] : curve.spreads) {
    auto const place = left + plot_width * x_axis.place(x);
    circles += line(place, top + panel_height * (1 - y_axis.place(low)), place,
                    top + panel_height * (1 - y_axis.place(high)), fmt::format("r{}", curve.run));
  }
  return fmt::format("<polyline class=\"r{}{}\"{} points=\"{}\"/>\n{}", curve.run, are_few ? "" : " many",
                     dashes(curve.stroke), points, circles);
}

void add_heights(Curve const& curve, std::vector<double>& values) {
  for (auto const& point : curve.points)
    values.push_back(point.y);
  for (auto const& [x, low, high] : curve.spreads)
    values.insert(values.end(), {low, high});
}

/// Axis over the values with a small margin on both sides.
Axis y_axis_of(Scale scale, std::vector<double> values) {
  constexpr auto least_ticks = 4;
  if (scale == Scale::logarithmic)
    for (auto& value : values)
      value = std::log(value);
  auto const [least, largest] = range_of(values);
  auto const margin = 0.04 * (largest - least);
  if (scale == Scale::logarithmic)
    return {std::exp(least - margin), std::exp(largest + margin), least_ticks, scale};
  return {least - margin, largest + margin, least_ticks};
}

Axis x_axis_of(Figure const& figure) {
  std::vector<double> xs;
  for (auto const& panel : figure.panels)
    for (auto const& curve : panel.curves)
      for (auto const& point : curve.points)
        xs.push_back(point.x);
  auto const [begin, end] = range_of(xs);
  if (!figure.x_ticks.empty()) return {begin, end, figure.x_ticks, figure.x_scale};
  return {begin, end, 6, figure.x_scale};
}

std::string panel_at(Panel const& panel, Axis const& x_axis, double top) {
  std::vector<double> values;
  for (auto const& curve : panel.curves)
    add_heights(curve, values);
  if (panel.begins_at_zero) values.push_back(0);
  auto const y_axis = y_axis_of(panel.y_scale, std::move(values));
  auto const bottom = top + panel_height;
  auto svg = text_at(left, top - 10, "start", panel.title, " font-weight=\"bold\"");
  for (auto const tick : y_axis.ticks()) {
    auto const y = top + panel_height * (1 - y_axis.place(tick));
    svg += line(left, y, width - right, y, "grid") + text_at(left - 8, y + 4.5, "end", y_axis.label(tick));
  }
  for (auto const tick : x_axis.ticks()) {
    auto const x = left + plot_width * x_axis.place(tick);
    svg += line(x, bottom, x, bottom + 5, "axis") + text_at(x, bottom + 19, "middle", x_axis.label(tick));
  }
  svg += line(left, bottom, width - right, bottom, "axis");
  // Draw curves with fewer points last, because thousands of steps would hide a few evaluations.
  auto curves = panel.curves;
  std::ranges::stable_sort(curves, std::greater(), [](Curve const& curve) { return curve.points.size(); });
  for (auto const& curve : curves)
    svg += curve_at(curve, x_axis, y_axis, top);
  return svg;
}

} // namespace

std::vector<Point> thinned(std::vector<Point> const& points, double begin, double end, int num_columns) {
  if (points.size() <= 2 * static_cast<std::size_t>(num_columns) || !(begin < end)) return points;
  auto const column_of = [&](Point const& point) {
    return std::min(num_columns - 1, static_cast<int>((point.x - begin) / (end - begin) * num_columns));
  };
  std::vector<Point> kept;
  for (auto at = points.begin(); at != points.end();) {
    auto const behind = std::find_if(at, points.end(),
                                     [&](Point const& point) { return column_of(point) != column_of(*at); });
    auto [low, high] =
        std::minmax_element(at, behind, [](Point const& a, Point const& b) { return a.y < b.y; });
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
    at = behind;
  }
  return kept;
}

std::string to_svg(Figure const& figure) {
  auto const x_axis = x_axis_of(figure);

  auto const entries = legend_of(figure);
  auto top = draw_legend(entries, nullptr);
  std::string body;
  draw_legend(entries, &body);
  for (auto const& panel : figure.panels) {
    body += panel_at(panel, x_axis, top + title_height);
    top += title_height + panel_height + numbers_height;
  }
  body += text_at(left + plot_width / 2, top + 16, "middle", figure.x_title);
  if (!figure.note.empty()) {
    top += legend_line;
    body += text_at(left + plot_width / 2, top + 16, "middle", figure.note, " font-style=\"italic\"");
  }
  auto const height = top + 28;
  return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
                     "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n"
                     "{2}<rect width=\"{0:.0f}\" height=\"{1:.0f}\" class=\"page\"/>\n{3}</svg>\n",
                     width, height, style(figure.runs.size()), body);
}

} // namespace orthant::cli
