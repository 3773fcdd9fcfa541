#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What `doctor` says: each check has a fact, and findings if something is wrong, each with its fix.

#include <span>
#include <string>
#include <vector>

namespace orthant::cli {

struct Finding {
  std::string what;
  std::string fix;
};

struct Diagnosis {
  std::string name;
  std::string fact; // what was seen
  std::vector<Finding> findings{};
};

/// One line per check, and two per finding.
[[nodiscard]] std::string text_of(std::span<Diagnosis const> checks);
[[nodiscard]] int num_findings(std::span<Diagnosis const> checks);

} // namespace orthant::cli
