#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The products of a GCN by name: what its layers run, and what the list of a step holds. Equations:
// layers/network_layer.hpp and layers/network_linear.hpp.

#include "models/gnn/plan/network_plan.hpp"
#include "pmm/edges/edge_block.hpp"
#include "pmm/neighbors/edge_maximum.hpp"
#include "pmm/product/product.hpp"

namespace orthant::models {

// What one rank does and holds for a layer that takes the maximum of the neighbours (pmm/neighbors/edge_maximum.hpp): what
// gnn/layers/maximum_aggregation.hpp runs, and what a list holds. Axis b cuts the columns. In the schedule rows, with the rows of
// owners [n]:
//
//   F_a := columns(F)       p := maximum of this block       P[n] := rows^T(p), the sum over a
//   dP_c := rows(dP)        d := its adjoint                 dF[n] := columns^T(d)
//
// In the schedule pmm3d, as products on three axes:
//
//   P[c,b] := max_a A[c,a] F[a,b]                            dF[a,b] := sum_c A[c,a]^T dP[c,b] along the maxima

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

/// Of one convolution, forward and backward. A dense layer and a propagation have only theirs.
struct NetworkLayerProducts {
  pmm::ProductPlan aggregate, transform;
  pmm::ProductPlan aggregate_back, weight_back, transform_back;
};
/// Results travel in the wire's format, except the gradients of weights, which are never rounded. Operands and
/// results are held in formats.operand, except the gradients of weights and logits.
[[nodiscard]] NetworkLayerProducts products_of(NetworkLayerPlan const& plan, NumberFormats const& formats);

/// Of the vertex itself, whose rows S lie as A^ F does, and V as A^ U.
struct SelfProducts {
  pmm::ProductPlan transform, weight_back, transform_back;
};
[[nodiscard]] SelfProducts self_products_of(NetworkLayerPlan const& plan, NumberFormats const& formats);

/// The aggregations of one convolution between owners of vertices, whose cells have these sizes and of which
/// so many rows move.
struct NetworkLayerAggregates {
  pmm::AggregatePlan forward, backward;
};
/// Columns of what A^ is multiplied by on a rank: between owners they are split evenly, up to one.
[[nodiscard]] std::int64_t aggregated_columns(pmm::GridShape const& shape,
                                              pmm::Coordinates const& coordinates,
                                              NetworkLayerPlan const& plan);
/// The cells of the rank of the list: of what the layer keeps of the graph, or of the whole graph.
[[nodiscard]] pmm::CellSizes cells_of(pmm::StepPlan const& step, NetworkLayerPlan const& plan);
[[nodiscard]] NetworkLayerAggregates aggregates_of(NetworkLayerPlan const& plan, pmm::CellSizes const& cells,
                                                   NumberFormats const& formats,
                                                   pmm::NeededCountsOfAxes const& needed = {});

/// Of a layer that takes the maximum of the neighbours, in the schedules rows and pmm3d.
[[nodiscard]] MaximumPlan maximum_plan_of(NetworkLayerPlan const& plan);
[[nodiscard]] PlaneMaximumSteps plane_maximum_of(pmm::GridShape const& shape,
                                                 pmm::Coordinates const& coordinates,
                                                 NetworkLayerPlan const& plan, std::int64_t num_edges);
/// List it in either. `cells`: of the rank, in the schedule rows.
void plan_maximum(pmm::StepPlan& step, NetworkLayerPlan const& layer, pmm::CellSizes const& cells,
                  std::int64_t num_edges);
void plan_maximum_backward(pmm::StepPlan& step, NetworkLayerPlan const& layer, pmm::CellSizes const& cells,
                           std::int64_t num_edges);

/// Of an input projection or a head.
struct LinearProducts {
  pmm::ProductPlan product;
  pmm::ProductPlan input_back, weight_back;
};
[[nodiscard]] LinearProducts products_of(LinearPlan const& plan, NumberFormats const& formats);

} // namespace orthant::models
