#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The tables of a report, for a terminal and for a page.
//
// A report as one HTML page that needs nothing else: figures are in it as SVG.

#include "cli/report/scaling.hpp"

namespace orthant::cli {

struct ReportTable {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows; // as long as the header
  std::vector<std::string> notes{};           // said below
};

/// Of one experiment: times, speed-up and efficiency, beside what was predicted.
[[nodiscard]] ReportTable times_table(std::vector<ScalingCurve> const& curves, std::string const& experiment);
/// Bytes and memory beside what was predicted: what is exact, at most or about has columns of its own.
[[nodiscard]] ReportTable bytes_table(std::vector<ScalingCurve> const& curves, std::string const& experiment);
/// Milliseconds of each phase, and of each predicted term.
[[nodiscard]] ReportTable phases_table(std::vector<ScalingCurve> const& curves,
                                       std::string const& experiment);
/// Points without a result, with the reasons; no rows if all have one.
[[nodiscard]] ReportTable missing_table(std::vector<PointResult> const& results);

/// Columns in line, the first ones to the left and numbers to the right.
[[nodiscard]] std::string to_text(ReportTable const& table);
[[nodiscard]] std::string to_html(ReportTable const& table);

/// With `&`, `<` and the like as HTML wants them.
[[nodiscard]] std::string html_text(std::string_view text);

/// What is said of seconds on more ranks than cores.
inline constexpr auto oversubscribed_note = "more ranks than cores: these seconds mean nothing";

/// "seconds are virtual: emulated perlmutter"; empty for a clock on the wall.
[[nodiscard]] std::string clock_note(std::string const& emulated);

struct PageSection {
  std::string title;
  std::string svg; // empty: none
  std::vector<ReportTable> tables;
};

/// The text of the page. A browser loads it anew every `reload_seconds`; never if that is 0.
[[nodiscard]] std::string html_page(std::string const& title, std::string const& summary,
                                    std::vector<PageSection> const& sections, int reload_seconds = 0);

} // namespace orthant::cli
