#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The memory of layers that take the maximum of the neighbours (propagation/maximum_step.hpp).

#include "models/plan/gcn_plan.hpp"
#include "models/propagation/maximum_step.hpp"

namespace orthant::models {

/// Numbers that all layers use in turn.
struct MaximumScratchPlan {
  std::int64_t values = 0; // F, and d
  std::int64_t result = 0; // p, and dP
  std::int64_t found = 0;  // and places, which each layer has to itself

  /// The longest of both.
  void add(MaximumScratchPlan const& other);
  void list(pmm::StepPlan& step) const;
};

/// Of a network. `cells`: of its block in the schedule rows, else not read.
[[nodiscard]] MaximumScratchPlan maximum_scratch_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                                                    pmm::CellSizes const& cells);
void reserve_maximum(pmm::WorkspacePlan& work, pmm::StepPlan const& step, NetworkPlan const& plan);
/// Lists the arrays that layers use in turn, and those that each has to itself.
void plan_maximum_arrays(pmm::StepPlan& step, NetworkPlan const& plan);

} // namespace orthant::models
