#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How long a list of operations takes on a machine, term by term, one after the other; and what of it is saved where calls
// travel while products are computed (Overlap):
//
//   hidden = min(calls, s share work)        s: Machine::Collectives::overlap

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
  double hidden = 0;                   // of the calls, behind work

  [[nodiscard]] double communication() const;
  [[nodiscard]] double total() const { return sparse + dense + passes + communication() - hidden; }
  /// The largest term: "sparse products", "dense products", "passes" or the calls along an axis, "x".
  [[nodiscard]] std::string bound() const;
};

/// Of that many steps.
[[nodiscard]] StepSeconds operator*(StepSeconds const& step, double num_steps);

[[nodiscard]] StepSeconds seconds_of(StepPlan const& step, Machine const& machine);
/// Axes of a grid that reach other nodes, if calls travel behind work on this machine; else none. Ranks fill the nodes one after the
/// other.
[[nodiscard]] AxisSet hidden_axes_on(Machine const& machine, GridShape const& shape);
/// Of one of its operations.
[[nodiscard]] double seconds_of(PlannedOperation const& operation, StepPlan const& step,
                                Machine const& machine);

} // namespace orthant::pmm
