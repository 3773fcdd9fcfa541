#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A report as one HTML page that needs nothing else: figures are in it as SVG.

#include "cli/report/tables.hpp"

namespace orthant::cli {

struct PageSection {
  std::string title;
  std::string svg; // empty: none
  std::vector<ReportTable> tables;
};

[[nodiscard]] std::string html_page(std::string const& title, std::string const& summary,
                                    std::vector<PageSection> const& sections);

} // namespace orthant::cli
