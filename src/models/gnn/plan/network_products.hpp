#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Named products of a graph network: layers run them, and the list of a step holds them. Equations:
// gnn/layers/network_layer.hpp and gnn/layers/network_linear.hpp.

#include "models/gnn/plan/network_plan.hpp"
#include "pmm/edges/edge_block.hpp"
#include "pmm/neighbors/edge_maximum.hpp"
#include "pmm/product/product.hpp"

namespace orthant::models {

// Operations of a layer that takes the maximum over neighbors (pmm/neighbors/edge_maximum.hpp) on one rank:
// gnn/aggregation/maximum_aggregation.hpp runs them, and the list of a step holds them. Axis b partitions the columns. In the schedule
// `rows`, where a rank owns n rows:
//
//   F_a := columns(F)       p := maximum of this block       P[n] := rows^T(p), the sum over a
//   dP_c := rows(dP)        d := its adjoint                 dF[n] := columns^T(d)
//
// In the schedule `pmm3d`, where three axes partition the operands:
//
//   P[c,b] := max_a A[c,a] F[a,b]                            dF[a,b] := sum_c A[c,a]^T dP[c,b] along the maxima

/// The maximum of one layer.
struct MaximumPlan {
  pmm::Roles roles;
  pmm::Placement adjacency;
  std::int64_t num_columns = 0;     // columns of F
  pmm::NeededCountsOfAxes needed{}; // numbers of rows that move
  runtime::Wire wire = runtime::Wire::native;
};

struct MaximumSteps {
  /// `cells` and `num_edges`: the sizes of this rank's block and its number of edges.
  MaximumSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, MaximumPlan const& plan,
               pmm::CellSizes const& cells, std::int64_t num_edges);

  pmm::Axis axis; // the columns of a row are split over it
  pmm::Placement adjacency;
  pmm::BlockRowsPlan values, result; // F, and P
  pmm::BlockRowsSteps values_steps, result_steps;
  pmm::EdgeCounts counts;
  std::int64_t width = 0; // columns of this rank

  /// Number of elements of P in the block.
  [[nodiscard]] std::int64_t num_results() const { return counts.rows * width; }
};

/// The maximum of a layer in the schedule `pmm3d` on one rank: A [c x a], F [a x b].
struct PlaneMaximumSteps {
  PlaneMaximumSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                    pmm::Placement const& adjacency, pmm::Placement const& input, std::int64_t num_edges);

  pmm::Placement adjacency;
  pmm::EdgeCounts counts;
  std::int64_t width = 0; // columns of this rank

  [[nodiscard]] pmm::AxisSet over_maxima() const { return adjacency.layout.columns; }
  [[nodiscard]] pmm::AxisSet over_gradients() const { return adjacency.layout.rows; }
  /// Number of elements of P, and of dF.
  [[nodiscard]] std::int64_t num_results() const { return counts.rows * width; }
  [[nodiscard]] std::int64_t num_gradients() const { return counts.columns * width; }
};

/// List the forward and the backward pass.
void plan_maximum(pmm::StepPlan& step, MaximumSteps const& steps);
void plan_maximum_backward(pmm::StepPlan& step, MaximumSteps const& steps);
void plan_maximum(pmm::StepPlan& step, PlaneMaximumSteps const& steps);
void plan_maximum_backward(pmm::StepPlan& step, PlaneMaximumSteps const& steps, runtime::Wire wire);

/// Products of one convolution, forward and backward. A dense layer or a propagation has only one of the two.
struct NetworkLayerProducts {
  pmm::ProductPlan aggregate, transform;
  pmm::ProductPlan aggregate_back, weight_back, transform_back;
};
/// Results are sent in formats.wire, except gradients of weights, which are never rounded. Operands and results are stored in
/// formats.operand, except gradients of weights and logits.
[[nodiscard]] NetworkLayerProducts products_of(NetworkLayerPlan const& plan, NumberFormats const& formats);

/// Products with the weight W' of the vertex itself. Its input S has the placement of A^ F; its result V has the placement of A^ U.
struct SelfProducts {
  pmm::ProductPlan transform, weight_back, transform_back;
};
[[nodiscard]] SelfProducts self_products_of(NetworkLayerPlan const& plan, NumberFormats const& formats);

/// Aggregations of one convolution in the schedule `rows`.
struct NetworkLayerAggregates {
  pmm::AggregatePlan forward, backward;
};
/// Number of columns of the operand of A^ on a rank. In the schedule `rows` the columns are split evenly; parts differ by at most one.
[[nodiscard]] std::int64_t aggregated_columns(pmm::GridShape const& shape,
                                              pmm::Coordinates const& coordinates,
                                              NetworkLayerPlan const& plan);
/// Cells of this rank: of the layer's kept block if it has one, otherwise of the whole graph.
[[nodiscard]] pmm::CellSizes cells_of(pmm::StepPlan const& step, NetworkLayerPlan const& plan);
/// Cells of the layer's kept block if it has one, otherwise `whole`.
[[nodiscard]] inline pmm::CellSizes const& cells_of(NetworkLayerPlan const& plan,
                                                    pmm::CellSizes const& whole) {
  return plan.owners && plan.owners->kept ? plan.owners->kept->cells : whole;
}
[[nodiscard]] NetworkLayerAggregates aggregates_of(NetworkLayerPlan const& plan, pmm::CellSizes const& cells,
                                                   NumberFormats const& formats,
                                                   pmm::NeededCountsOfAxes const& needed = {});

/// The maximum of a layer, in the schedules `rows` and `pmm3d`.
[[nodiscard]] MaximumPlan maximum_plan_of(NetworkLayerPlan const& plan,
                                          pmm::NeededCountsOfAxes const& needed = {},
                                          runtime::Wire wire = runtime::Wire::native);
[[nodiscard]] PlaneMaximumSteps plane_maximum_of(pmm::GridShape const& shape,
                                                 pmm::Coordinates const& coordinates,
                                                 NetworkLayerPlan const& plan, std::int64_t num_edges);
/// List the passes of a maximum, in either schedule. `cells` and `needed`: of this rank, in the schedule `rows`.
void plan_maximum(pmm::StepPlan& step, NetworkLayerPlan const& layer, pmm::CellSizes const& cells,
                  std::int64_t num_edges, pmm::NeededCountsOfAxes const& needed, runtime::Wire wire);
void plan_maximum_backward(pmm::StepPlan& step, NetworkLayerPlan const& layer, pmm::CellSizes const& cells,
                           std::int64_t num_edges, pmm::NeededCountsOfAxes const& needed, runtime::Wire wire);

/// Products of an input projection or a head.
struct LinearProducts {
  pmm::ProductPlan product;
  pmm::ProductPlan input_back, weight_back;
};
[[nodiscard]] LinearProducts products_of(LinearPlan const& plan, NumberFormats const& formats);
/// Products of the map of a residual, whose part of dF is added to dF.
[[nodiscard]] LinearProducts residual_products_of(LinearPlan const& plan, NumberFormats const& formats);

} // namespace orthant::models
