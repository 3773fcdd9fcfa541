// SPDX-License-Identifier: Apache-2.0
#include "cli/report/tables.hpp"

#include "cli/machine/units.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace orthant::cli {
namespace {

using Row = std::vector<std::string>;

std::string unit_of(std::vector<ScalingCurve> const& curves, std::string const& experiment) {
  auto const found = std::ranges::find(curves, experiment, &ScalingCurve::experiment);
  return found == curves.end() ? "" : found->unit;
}

std::string title_of(std::vector<ScalingCurve> const& curves, std::string const& experiment,
                     std::string const& what) {
  auto const& curve = *std::ranges::find(curves, experiment, &ScalingCurve::experiment);
  auto const note = clock_note(curve.emulated);
  return fmt::format("{} ({} scaling): {}{}", experiment, curve.is_weak ? "weak" : "strong", what,
                     note.empty() ? "" : "; " + note);
}

/// Difference of the measured to the predicted number in percent: "+3.1 %".
std::string difference(double measured, double predicted) {
  return predicted > 0 ? fmt::format("{:+.1f} %", percent * (measured / predicted - 1)) : "-";
}

/// Calls add(curve, point) for all points of the experiment.
template<class Add>
void for_each_point(std::vector<ScalingCurve> const& curves, std::string const& experiment, Add&& add) {
  for (auto const& curve : curves)
    if (curve.experiment == experiment)
      for (auto const& point : curve.points)
        add(curve, point);
}

Row first_cells(ScalingCurve const& curve, ScalingPoint const& point) {
  return {curve.name, std::to_string(point.ranks), point.grid};
}

/// First cells of a row in a table of seconds; marks points with more ranks than cores.
Row first_cells_of_seconds(ScalingCurve const& curve, ScalingPoint const& point, ReportTable& table) {
  auto cells = first_cells(curve, point);
  if (!point.is_oversubscribed) return cells;
  cells[1] += "*";
  if (table.notes.empty()) table.notes.push_back(fmt::format("* {}", oversubscribed_note));
  return cells;
}

struct Kind {
  models::Exactness exactness;
  std::string heading;
};

/// Kinds of predictions that occur in an experiment; each gets a column.
std::vector<Kind> kinds_of(std::vector<ScalingCurve> const& curves, std::string const& experiment) {
  std::vector<Kind> kinds;
  for (auto const& kind : {Kind{models::Exactness::exact, "predicted exactly"},
                           {models::Exactness::at_most, "predicted at most"},
                           {models::Exactness::about, "predicted about"}}) {
    auto is_there = false;
    for_each_point(curves, experiment, [&](ScalingCurve const&, ScalingPoint const& point) {
      is_there = is_there || (point.predicted && point.predicted->sent_are == kind.exactness);
    });
    if (is_there) kinds.push_back(kind);
  }
  return kinds;
}

/// Adds the predicted number and the difference of the measured one; two dashes if there is no prediction.
void add_predicted(Row& row, double measured, std::optional<double> predicted) {
  row.push_back(predicted ? fmt::format("{:.2f}", *predicted / mega) : "-");
  row.push_back(!predicted ? "-" : *predicted == measured ? "equal" : difference(measured, *predicted));
}

/// Number of characters of UTF-8 text.
std::size_t width_of(std::string const& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

/// Heading in HTML; allows line breaks after underscores, since names of phases are long.
std::string html_heading(std::string const& text) {
  std::string html;
  for (auto const c : html_text(text))
    html += c == '_' ? std::string("_<wbr/>") : std::string(1, c);
  return html;
}

} // namespace

std::string clock_note(std::string const& emulated) {
  return emulated.empty() ? "" : "seconds are virtual: emulated " + emulated;
}

ReportTable times_table(std::vector<ScalingCurve> const& curves, std::string const& experiment) {
  ReportTable table{
      title_of(curves, experiment, fmt::format("milliseconds per {}", unit_of(curves, experiment))),
      {"curve", "ranks", "grid", "schedule", "repeats", "median", "quartiles", "speed-up", "efficiency",
       "predicted", "measured is"},
      {}};
  for_each_point(curves, experiment, [&](ScalingCurve const& curve, ScalingPoint const& point) {
    auto row = first_cells_of_seconds(curve, point, table);
    auto const predicted = point.predicted ? point.predicted->seconds : 0;
    for (auto const& cell :
         {point.schedule.empty() ? std::string("-") : point.schedule, std::to_string(point.num_repeats),
          fmt::format("{:.4g}", point.seconds / milli),
          fmt::format("{:.4g} .. {:.4g}", point.low / milli, point.high / milli),
          fmt::format("{:.2f}", point.speed_up), fmt::format("{:.0f} %", percent * point.efficiency),
          predicted > 0 ? fmt::format("{:.4g}", predicted / milli) : std::string("-"),
          difference(point.seconds, predicted)})
      row.push_back(cell);
    table.rows.push_back(std::move(row));
  });
  return table;
}

ReportTable bytes_table(std::vector<ScalingCurve> const& curves, std::string const& experiment) {
  ReportTable table{
      title_of(
          curves, experiment,
          fmt::format("MB (10^6 bytes) that all ranks send per {}, and memory of the rank that takes most",
                      unit_of(curves, experiment))),
      {"curve", "ranks", "grid", "MB sent"},
      {}};
  auto const kinds = kinds_of(curves, experiment);
  for (auto const& kind : kinds)
    table.header.insert(table.header.end(), {kind.heading, "measured is"});
  table.header.emplace_back("MB memory");
  if (!kinds.empty()) table.header.insert(table.header.end(), {"predicted about", "measured is"});
  std::set<std::string> notes;
  for_each_point(curves, experiment, [&](ScalingCurve const& curve, ScalingPoint const& point) {
    auto row = first_cells(curve, point);
    auto const& predicted = point.predicted;
    row.push_back(fmt::format("{:.2f}", point.sent_bytes / mega));
    for (auto const& kind : kinds) {
      auto const is_of_kind = predicted && predicted->sent_are == kind.exactness;
      add_predicted(row, point.sent_bytes, is_of_kind ? std::optional(predicted->sent_bytes) : std::nullopt);
      if (is_of_kind && !predicted->reason.empty())
        notes.insert(fmt::format("{}: {}", kind.heading, predicted->reason));
    }
    row.push_back(fmt::format("{:.2f}", point.memory_bytes / mega));
    if (!kinds.empty())
      add_predicted(row, point.memory_bytes,
                    predicted && predicted->memory_bytes > 0 ? std::optional(predicted->memory_bytes)
                                                             : std::nullopt);
    table.rows.push_back(std::move(row));
  });
  table.notes.assign(notes.begin(), notes.end());
  return table;
}

ReportTable phases_table(std::vector<ScalingCurve> const& curves, std::string const& experiment) {
  std::set<std::string> phases;
  auto has_predictions = false;
  for_each_point(curves, experiment, [&](ScalingCurve const&, ScalingPoint const& point) {
    for (auto const& [phase, seconds] : point.phases)
      phases.insert(phase);
    has_predictions = has_predictions || point.predicted.has_value();
  });
  ReportTable table{
      title_of(curves, experiment,
               fmt::format("milliseconds of the phases of rank 0, per {}", unit_of(curves, experiment))),
      {"curve", "ranks", "grid"},
      {}};
  table.header.insert(table.header.end(), phases.begin(), phases.end());
  if (has_predictions)
    table.header.insert(table.header.end(), {"predicted: sparse", "dense", "passes", "calls"});
  for_each_point(curves, experiment, [&](ScalingCurve const& curve, ScalingPoint const& point) {
    auto row = first_cells_of_seconds(curve, point, table);
    auto const add = [&](bool is_there, double seconds) {
      row.push_back(is_there ? fmt::format("{:.4g}", seconds / milli) : "-");
    };
    for (auto const& phase : phases)
      add(point.phases.contains(phase), point.phases.contains(phase) ? point.phases.at(phase) : 0);
    if (has_predictions) {
      auto const& p = point.predicted;
      for (auto const seconds : {p ? p->sparse : 0, p ? p->dense : 0, p ? p->passes : 0, p ? p->calls : 0})
        add(p.has_value(), seconds);
    }
    table.rows.push_back(std::move(row));
  });
  return table;
}

ReportTable missing_table(std::vector<PointResult> const& results) {
  ReportTable table{"points without a result", {"point", "state", "reason"}, {}};
  for (auto const& result : results)
    if (!result.is_done())
      table.rows.push_back({result.key, result.state, result.reason.empty() ? "-" : result.reason});
  return table;
}

std::string to_text(ReportTable const& table) {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < table.header.size(); ++i) {
    widths.push_back(width_of(table.header[i]));
    for (auto const& row : table.rows)
      widths[i] = std::max(widths[i], width_of(row[i]));
  }
  auto const is_text = [&](std::size_t i) {
    return table.header[i] == "curve" || table.header[i] == "grid" || table.header[i] == "point" ||
           table.header[i] == "state" || table.header[i] == "reason" || table.header[i] == "schedule";
  };
  auto text = table.title + "\n";
  auto const add = [&](Row const& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      auto const blanks = std::string(widths[i] - width_of(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (is_text(i) ? row[i] + blanks : blanks + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add(table.header);
  for (auto const& row : table.rows)
    add(row);
  for (auto const& note : table.notes)
    text += note + "\n";
  return text;
}

std::string html_text(std::string_view text) {
  std::string result;
  for (auto const c : text)
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else
      result += c == '\0' ? '?' : c;
  return result;
}

std::string to_html(ReportTable const& table) {
  auto html =
      fmt::format("<figure><figcaption>{}</figcaption>\n<table>\n<thead><tr>", html_text(table.title));
  for (auto const& cell : table.header)
    html += fmt::format("<th>{}</th>", html_heading(cell));
  html += "</tr></thead>\n<tbody>\n";
  for (auto const& row : table.rows) {
    html += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      auto const is_text = i == 0 || table.header[i] == "state" || table.header[i] == "reason";
      html += fmt::format("<td{}>{}</td>", is_text ? " class=\"text\"" : "", html_text(row[i]));
    }
    html += "</tr>\n";
  }
  html += "</tbody>\n</table>\n";
  for (auto const& note : table.notes)
    html += fmt::format("<p class=\"note\">{}</p>\n", html_text(note));
  return html + "</figure>\n";
}

namespace {

constexpr auto page_style = R"css(
:root{color-scheme:light dark;--ink:#24292f;--paper:#fff;--line:#d8dee4;--faint:#57606a}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--line:#30363d;--faint:#8b949e}}
body{font:15px/1.45 sans-serif;color:var(--ink);background:var(--paper);max-width:1060px;margin:2em auto;padding:0 1em}
h1{font-size:1.6em}h2{font-size:1.25em;margin-top:2em}
figure{margin:1.2em 0;overflow-x:auto}figcaption{color:var(--faint);margin-bottom:.4em}
table{border-collapse:collapse;font-size:13px}th,td{padding:3px 10px;border-bottom:1px solid var(--line);text-align:right}
th{vertical-align:bottom}td{white-space:nowrap}td.text,th:first-child{text-align:left}td.text:last-child{white-space:normal}
svg{max-width:100%;height:auto}
.note{color:var(--faint);font-size:13px;margin:.4em 0}
)css";

} // namespace

std::string html_page(std::string const& title, std::string const& summary,
                      std::vector<PageSection> const& sections, int reload_seconds) {
  auto const reload = reload_seconds == 0
                          ? std::string()
                          : fmt::format("<meta http-equiv=\"refresh\" content=\"{}\"/>\n", reload_seconds);
  auto html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n{3}"
      "<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>{0}</title>\n<style>{1}</style>"
      "</head>\n<body>\n<h1>{0}</h1>\n<p>{2}</p>\n",
      html_text(title), page_style, html_text(summary), reload);
  for (auto const& section : sections) {
    html += fmt::format("<h2>{}</h2>\n{}", html_text(section.title), section.svg);
    for (auto const& table : section.tables)
      html += to_html(table);
  }
  return html + "</body></html>\n";
}

} // namespace orthant::cli
