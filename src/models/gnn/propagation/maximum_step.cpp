// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/propagation/maximum_step.hpp"

#include "pmm/edges/edge_products.hpp"

namespace orthant::models {
namespace {

/// A column is a granule: heads of one column each.
pmm::BlockRowsPlan moves(MaximumPlan const& plan, pmm::CellSizes const& cells, pmm::BlockSide side) {
  return {plan.roles, cells, side, {plan.num_columns, 1}, plan.num_columns, 0};
}

} // namespace

MaximumSteps::MaximumSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                           MaximumPlan const& plan, pmm::CellSizes const& cells, std::int64_t num_edges)
    : axis(plan.roles.a),
      adjacency(plan.adjacency),
      values(moves(plan, cells, pmm::BlockSide::columns)),
      result(moves(plan, cells, pmm::BlockSide::rows)),
      values_steps(shape, coordinates, values),
      result_steps(shape, coordinates, result),
      counts{result_steps.num_block, values_steps.num_block, num_edges},
      width(result_steps.part.columns()) {}

PlaneMaximumSteps::PlaneMaximumSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                     pmm::Placement const& of_adjacency, pmm::Placement const& input,
                                     std::int64_t num_edges)
    : adjacency(of_adjacency),
      width(block_of(shape, coordinates, input).columns.size()) {
  auto const block = block_of(shape, coordinates, adjacency);
  counts = {block.rows.size(), block.columns.size(), num_edges};
}

void plan_maximum(pmm::StepPlan& step, MaximumSteps const& s) {
  plan_bring(step, s.values);
  // As many comparisons, and then additions, as a sparse product has of both.
  plan_edge_product(step, "P := max F", pmm::Form::product, s.counts, s.width, s.adjacency);
  plan_edge_maximum(step, s.axis, s.counts.rows, s.width);
  plan_bring_back(step, s.result);
}

void plan_maximum_backward(pmm::StepPlan& step, MaximumSteps const& s) {
  plan_bring(step, s.result);
  plan_edge_product(step, "dF := max^T dP", pmm::Form::right_grad, s.counts, s.width, s.adjacency);
  plan_bring_back(step, s.values);
}

void plan_maximum(pmm::StepPlan& step, PlaneMaximumSteps const& s) {
  plan_edge_product(step, "P := max F", pmm::Form::product, s.counts, s.width, s.adjacency);
  plan_edge_maximum(step, s.over_maxima(), s.counts.rows, s.width);
}

void plan_maximum_backward(pmm::StepPlan& step, PlaneMaximumSteps const& s) {
  plan_edge_product(step, "dF := max^T dP", pmm::Form::right_grad, s.counts, s.width, s.adjacency);
  if (s.num_gradients() > 0)
    step.add_call(runtime::Operation::all_reduce, s.over_gradients(), step.scalar_bytes(s.num_gradients()));
}

} // namespace orthant::models
