// SPDX-License-Identifier: Apache-2.0
#include "cli/report/page.hpp"

#include <fmt/format.h>

namespace orthant::cli {
namespace {

constexpr auto style = R"css(
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
                      std::vector<PageSection> const& sections) {
  auto html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>{0}</title>\n<style>{1}</style>"
      "</head>\n<body>\n<h1>{0}</h1>\n<p>{2}</p>\n",
      html_text(title), style, html_text(summary));
  for (auto const& section : sections) {
    html += fmt::format("<h2>{}</h2>\n{}", html_text(section.title), section.svg);
    for (auto const& table : section.tables)
      html += to_html(table);
  }
  return html + "</body></html>\n";
}

} // namespace orthant::cli
