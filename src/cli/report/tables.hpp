#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Tables of a report, as text and as HTML, and the report as one self-contained HTML page with figures as inline SVG.

#include "cli/report/scaling.hpp"

namespace orthant::cli {

struct ReportTable {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows; // each as long as the header
  std::vector<std::string> notes{};           // lines below the table
};

/// Times, speed-up and efficiency of one experiment, and the predicted times.
[[nodiscard]] ReportTable times_table(std::vector<ScalingCurve> const& curves, std::string const& experiment);
/// Measured and predicted bytes and memory; predictions that are exact, upper bounds or approximate have columns of their own.
[[nodiscard]] ReportTable bytes_table(std::vector<ScalingCurve> const& curves, std::string const& experiment);
/// Milliseconds of each phase and of each predicted term.
[[nodiscard]] ReportTable phases_table(std::vector<ScalingCurve> const& curves,
                                       std::string const& experiment);
/// Points without a result, with the reasons; the table has no rows if all points have one.
[[nodiscard]] ReportTable missing_table(std::vector<PointResult> const& results);

/// Table as text with aligned columns: names to the left, numbers to the right.
[[nodiscard]] std::string to_text(ReportTable const& table);
[[nodiscard]] std::string to_html(ReportTable const& table);

/// Escapes `&`, `<` and `>` for HTML.
[[nodiscard]] std::string html_text(std::string_view text);

/// Note on seconds measured with more ranks than cores.
inline constexpr auto oversubscribed_note = "more ranks than cores: these seconds mean nothing";

/// "seconds are virtual: emulated perlmutter"; empty for a real clock.
[[nodiscard]] std::string clock_note(std::string const& emulated);

struct PageSection {
  std::string title;
  std::string svg; // empty: no figure
  std::vector<ReportTable> tables;
};

/// Text of the page. A browser reloads it every `reload_seconds`; never if that is 0.
[[nodiscard]] std::string html_page(std::string const& title, std::string const& summary,
                                    std::vector<PageSection> const& sections, int reload_seconds = 0);

} // namespace orthant::cli
