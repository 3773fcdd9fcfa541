// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/finding.hpp"

#include <fmt/format.h>

namespace orthant::cli {

std::string text_of(std::span<Diagnosis const> checks) {
  std::string text;
  for (auto const& [name, fact, findings] : checks) {
    text += fmt::format("{:<6} {:<13} {}\n", findings.empty() ? "ok" : "wrong", name, fact);
    for (auto const& [what, fix] : findings)
      text += fmt::format("{:<21}{}\n{:<21}fix: {}\n", "", what, "", fix);
  }
  return text;
}

int num_findings(std::span<Diagnosis const> checks) {
  std::size_t count = 0;
  for (auto const& check : checks)
    count += check.findings.size();
  return static_cast<int>(count);
}

} // namespace orthant::cli
