// SPDX-License-Identifier: Apache-2.0
#include "models/aggregation/maximum_step.hpp"

#include "models/plan/gcn_products.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace orthant::models {
namespace {

/// A column is a granule: heads of one column each.
pmm::BlockRowsPlan moves(GcnLayerPlan const& layer, pmm::CellSizes const& cells, pmm::BlockSide side) {
  auto const width = layer.input.extents.columns;
  return {layer.owners.value().roles, cells, side, {width, 1}, width, 0};
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

std::vector<MaximumSteps> steps_of(pmm::StepPlan const& step, GcnPlan const& plan,
                                   pmm::CellSizes const& cells, std::int64_t num_edges) {
  std::vector<MaximumSteps> all;
  for (auto const& layer : plan.layers)
    if (layer.takes_maximum) all.emplace_back(step.shape(), step.coordinates(), layer, cells, num_edges);
  return all;
}

/// The same of the whole graph.
std::vector<MaximumSteps> steps_of(pmm::StepPlan const& step, GcnPlan const& plan, std::int64_t num_edges) {
  if (!plan.layers.front().takes_maximum) return {};
  return steps_of(step, plan, cells_of(step, plan.layers.front()), num_edges);
}

} // namespace

MaximumSteps::MaximumSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                           GcnLayerPlan const& layer, pmm::CellSizes const& cells, std::int64_t num_edges)
    : axis(layer.owners.value().roles.a),
      adjacency(layer.adjacency),
      values(moves(layer, cells, pmm::BlockSide::columns)),
      result(moves(layer, cells, pmm::BlockSide::rows)),
      values_steps(shape, coordinates, values),
      result_steps(shape, coordinates, result),
      counts{result_steps.num_block, values_steps.num_block, num_edges},
      width(result_steps.part.columns()) {}

void MaximumScratchPlan::add(MaximumSteps const& s) {
  values = std::max(values, s.values_steps.has_copy() ? s.values_steps.num_in_block() : 0);
  result = std::max(result, s.result_steps.has_copy() ? s.result_steps.num_in_block() : 0);
  found = std::max(found, s.num_results());
}

void MaximumScratchPlan::list(pmm::StepPlan& step) const {
  step.add_array("orthant::models::maximum_values", step.scalar_bytes(values));
  step.add_array("orthant::models::maximum_result", step.scalar_bytes(result));
  step.add_array("orthant::models::maximum_found", found * std::int64_t{sizeof(runtime::ValueIndex<double>)});
}

MaximumScratchPlan maximum_scratch_of(pmm::StepPlan const& step, GcnPlan const& plan,
                                      pmm::CellSizes const& cells, std::int64_t num_edges) {
  MaximumScratchPlan scratch;
  for (auto const& steps : steps_of(step, plan, cells, num_edges))
    scratch.add(steps);
  return scratch;
}

void reserve_maximum(pmm::WorkspacePlan& work, pmm::StepPlan const& step, GcnPlan const& plan) {
  for (auto const& s : steps_of(step, plan, 0))
    for (auto const* const steps : {&s.values_steps, &s.result_steps})
      reserve_block_rows(work, *steps);
}

void plan_maximum_arrays(pmm::StepPlan& step, GcnPlan const& plan, std::int64_t num_edges) {
  MaximumScratchPlan scratch;
  for (auto const& steps : steps_of(step, plan, num_edges)) {
    scratch.add(steps);
    step.add_array("orthant::models::maximum_places",
                   steps.num_results() * std::int64_t{sizeof(runtime::LocalColumn)});
  }
  scratch.list(step);
}

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
