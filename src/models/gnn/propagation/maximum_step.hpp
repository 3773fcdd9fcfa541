#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What one rank does and holds for a layer that takes the maximum of the neighbours (pmm/neighbors/edge_maximum.hpp): what
// gnn/aggregation/maximum_aggregation.hpp runs, and what a list holds. Axis b cuts the columns. In the schedule rows, with the rows of
// owners [n]:
//
//   F_a := columns(F)       p := maximum of this block       P[n] := rows^T(p), the sum over a
//   dP_c := rows(dP)        d := its adjoint                 dF[n] := columns^T(d)
//
// In the schedule pmm3d, as products on three axes:
//
//   P[c,b] := max_a A[c,a] F[a,b]                            dF[a,b] := sum_c A[c,a]^T dP[c,b] along the maxima

#include "pmm/edges/block_rows.hpp"
#include "pmm/neighbors/edge_maximum.hpp"

namespace orthant::models {

/// Of a layer.
struct MaximumPlan {
  pmm::Roles roles;
  pmm::Placement adjacency;
  std::int64_t num_columns = 0; // of F
};

struct MaximumSteps {
  /// `cells`: of this rank's block, which has so many edges.
  MaximumSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, MaximumPlan const& plan,
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

/// Of a layer of the schedule pmm3d, on the rank of a list or of a grid: A [c x a], F [a x b].
struct PlaneMaximumSteps {
  PlaneMaximumSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                    pmm::Placement const& adjacency, pmm::Placement const& input, std::int64_t num_edges);

  pmm::Placement adjacency;
  pmm::EdgeCounts counts;
  std::int64_t width = 0; // columns of this rank

  [[nodiscard]] pmm::AxisSet over_maxima() const { return adjacency.layout.columns; }
  [[nodiscard]] pmm::AxisSet over_gradients() const { return adjacency.layout.rows; }
  /// Of P, and of dF.
  [[nodiscard]] std::int64_t num_results() const { return counts.rows * width; }
  [[nodiscard]] std::int64_t num_gradients() const { return counts.columns * width; }
};

/// List forward and backward pass.
void plan_maximum(pmm::StepPlan& step, MaximumSteps const& steps);
void plan_maximum_backward(pmm::StepPlan& step, MaximumSteps const& steps);
void plan_maximum(pmm::StepPlan& step, PlaneMaximumSteps const& steps);
void plan_maximum_backward(pmm::StepPlan& step, PlaneMaximumSteps const& steps);

} // namespace orthant::models
