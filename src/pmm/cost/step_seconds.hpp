#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How long a list of operations takes on a machine, term by term. One after the other: what travels behind
// products is counted in full, so the sum is an upper bound where a schedule overlaps.

#include "pmm/cost/machine.hpp"
#include "pmm/cost/step_plan.hpp"

#include <map>
#include <string>

namespace orthant::pmm {

struct StepSeconds {
  double sparse = 0; // products
  double dense = 0;
  double passes = 0;                   // over arrays
  std::map<std::string, double> calls; // by axis

  [[nodiscard]] double communication() const;
  [[nodiscard]] double total() const { return sparse + dense + passes + communication(); }
  /// The largest term: "sparse products", "dense products", "passes" or the calls along an axis, "x".
  [[nodiscard]] std::string bound() const;
};

/// Of that many steps.
[[nodiscard]] StepSeconds operator*(StepSeconds const& step, double num_steps);

[[nodiscard]] StepSeconds seconds_of(StepPlan const& step, Machine const& machine);
/// Of one of its operations.
[[nodiscard]] double seconds_of(PlannedOperation const& operation, StepPlan const& step,
                                Machine const& machine);

} // namespace orthant::pmm
