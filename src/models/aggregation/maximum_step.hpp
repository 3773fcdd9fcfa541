#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What one rank does and holds for a layer that takes the maximum of the neighbours (pmm/neighbors/edge_maximum.hpp), in the schedule
// rows: what aggregation/maximum_aggregation.hpp runs, and what a list holds. Axis b cuts the columns. With the rows of owners [n]:
//
//   F_a := columns(F)       p := maximum of this block       P[n] := rows^T(p), the sum over a
//   dP_c := rows(dP)        d := its adjoint                 dF[n] := columns^T(d)

#include "models/plan/gcn_plan.hpp"
#include "pmm/edges/block_rows.hpp"
#include "pmm/neighbors/edge_maximum.hpp"

namespace orthant::models {

struct MaximumSteps {
  /// `cells`: of this rank's block, which has so many edges.
  MaximumSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, GcnLayerPlan const& layer,
               pmm::CellSizes const& cells, std::int64_t num_edges);

  pmm::Axis axis; // over which the columns of a row are cut
  pmm::Placement adjacency;
  pmm::BlockRowsPlan values, result; // F, and P
  pmm::BlockRowsSteps values_steps, result_steps;
  pmm::EdgeCounts counts;
  std::int64_t width = 0; // columns of this rank

  /// Of the block.
  [[nodiscard]] std::int64_t num_results() const { return counts.rows * width; }
};

/// Numbers that all layers use in turn.
struct MaximumScratchPlan {
  std::int64_t values = 0; // F, and d
  std::int64_t result = 0; // p, and dP
  std::int64_t found = 0;

  void add(MaximumSteps const& steps);
  void list(pmm::StepPlan& step) const;
};

/// Of a network whose block has these cells and so many edges.
[[nodiscard]] MaximumScratchPlan maximum_scratch_of(pmm::StepPlan const& step, GcnPlan const& plan,
                                                    pmm::CellSizes const& cells, std::int64_t num_edges);
void reserve_maximum(pmm::WorkspacePlan& work, pmm::StepPlan const& step, GcnPlan const& plan);
/// Lists the arrays that layers use in turn, and those that each has to itself.
void plan_maximum_arrays(pmm::StepPlan& step, GcnPlan const& plan, std::int64_t num_edges);

/// List forward and backward pass.
void plan_maximum(pmm::StepPlan& step, MaximumSteps const& steps);
void plan_maximum_backward(pmm::StepPlan& step, MaximumSteps const& steps);

} // namespace orthant::models
