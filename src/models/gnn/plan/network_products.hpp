#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The products of a GCN by name: what its layers run, and what the list of a step holds. Equations:
// network/network_layer.hpp and network/network_linear.hpp.

#include "models/gnn/plan/network_plan.hpp"
#include "models/gnn/propagation/maximum_step.hpp"
#include "pmm/product/pmm.hpp"

namespace orthant::models {

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
