#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The arrays of a training that keeps a part of the rows, listed once it is known which, and before they are
// made; and the memory that follows from the list.

#include "models/gnn/memory_estimate.hpp"
#include "models/pruning/pruned_operands.hpp"

namespace orthant::models {

/// The plans of a network on all rows and on those that are kept, with what decides its arrays.
struct PrunedPlans {
  NetworkPlan const& whole;
  NetworkPlan const& pruned;
  NetworkEpochTraits const& whole_traits;
  NetworkEpochTraits const& pruned_traits;
};

/// Lists the arrays of a pruned training. `evaluates`: there is a network on all rows beside it.
void plan_pruned_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, PrunedPlans const& plans,
                        NetworkSettings const& settings, OptimizerSettings const& optimizer, bool evaluates);

/// For the rank of `grid` that calls, if non-zeros of the whole graph's blocks and of features fall evenly.
/// `of_all_rows`: of the same training without pruning.
template<class T>
[[nodiscard]] MemoryEstimate
estimate_pruned_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts, NetworkPlan const& plan,
                       NetworkSettings const& settings, OptimizerSettings const& optimizer,
                       PrunedRows const& rows, bool evaluates, MemoryEstimate const& of_all_rows);

} // namespace orthant::models
