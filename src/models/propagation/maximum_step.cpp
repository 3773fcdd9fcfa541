// SPDX-License-Identifier: Apache-2.0
#include "models/propagation/maximum_step.hpp"

#include <utility>

namespace orthant::models {
namespace {

/// A column is a granule: heads of one column each.
pmm::BlockRowsPlan moves(MaximumPlan const& plan, pmm::CellSizes const& cells, pmm::BlockSide side) {
  return {plan.roles, cells, side, {plan.num_columns, 1}, plan.num_columns, 0};
}

/// As many comparisons, or additions, as a sparse product has of both.
void plan_product_of_edges(pmm::StepPlan& step, MaximumSteps const& s, char const* formula, pmm::Form form) {
  pmm::LocalProduct product;
  product.formula = formula;
  product.form = form;
  product.left = s.adjacency;
  product.is_sparse = true;
  auto const is_transposed = form == pmm::Form::right_grad;
  product.m = is_transposed ? s.counts.columns : s.counts.rows;
  product.k = is_transposed ? s.counts.rows : s.counts.columns;
  product.n = s.width;
  product.num_nonzeros = s.counts.edges;
  step.add_product(std::move(product));
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

void plan_maximum(pmm::StepPlan& step, MaximumSteps const& s) {
  plan_bring(step, s.values);
  plan_product_of_edges(step, s, "P := max F", pmm::Form::product);
  plan_edge_maximum(step, s.axis, s.counts.rows, s.width);
  plan_bring_back(step, s.result);
}

void plan_maximum_backward(pmm::StepPlan& step, MaximumSteps const& s) {
  plan_bring(step, s.result);
  plan_product_of_edges(step, s, "dF := max^T dP", pmm::Form::right_grad);
  plan_bring_back(step, s.values);
}

} // namespace orthant::models
