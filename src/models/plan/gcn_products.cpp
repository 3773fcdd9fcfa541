// SPDX-License-Identifier: Apache-2.0
#include "models/plan/gcn_products.hpp"

namespace orthant::models {

using pmm::Form;

namespace {

/// Where dW lies. All ranks have addends of that of a weight that they read whole: their sum is taken with all
/// others.
pmm::Placement gradient_of(pmm::Placement weight) {
  if (weight.layout.storage == pmm::Storage::replicated) weight.layout.storage = pmm::Storage::partial;
  return weight;
}

} // namespace

GcnLayerProducts products_of(GcnLayerPlan const& p, NumberFormats const& formats) {
  pmm::ProductOptions const rounded{.result_wire = formats.wire};
  pmm::ProductOptions const sparse{.result_wire = formats.wire, .operand_format = formats.operand};
  if (p.aggregates_first)
    return {.aggregate = {"H = A F", Form::product, p.adjacency, p.input, p.middle, sparse},
            .transform = {"Q = H W", Form::product, p.middle, p.weight, p.output, rounded},
            .aggregate_back = {"dF = A^T dH", Form::right_grad, p.adjacency, p.middle, p.input, sparse},
            .weight_back = {"dW = H^T dQ", Form::right_grad, p.middle, p.output, gradient_of(p.weight), {}},
            .transform_back = {"dH = dQ W^T", Form::left_grad, p.output, p.weight, p.middle, rounded}};
  return {.aggregate = {"Q = A U", Form::product, p.adjacency, p.middle, p.output, sparse},
          .transform = {"U = F W", Form::product, p.input, p.weight, p.middle, rounded},
          .aggregate_back = {"dU = A^T dQ", Form::right_grad, p.adjacency, p.output, p.middle, sparse},
          .weight_back = {"dW = F^T dU", Form::right_grad, p.input, p.middle, gradient_of(p.weight), {}},
          .transform_back = {"dF = dU W^T", Form::left_grad, p.middle, p.weight, p.input, rounded}};
}

pmm::CellSizes cells_of(pmm::StepPlan const& step, GcnLayerPlan const& p) {
  if (auto const& kept = p.owners.value().kept) return kept->cells;
  return contiguous_cells(step.shape(), step.coordinates(), p.owners.value().roles, p.input.extents.rows);
}

GcnLayerAggregates aggregates_of(GcnLayerPlan const& p, pmm::CellSizes const& cells,
                                 NumberFormats const& formats, pmm::NeededCountsOfAxes const& needed) {
  auto const roles = p.owners.value().roles;
  auto const backward = p.owners->backward;
  auto const hidden_axes = p.owners->hidden_axes;
  auto const width = p.aggregated_width();
  auto const [forward_formula, backward_formula] =
      p.aggregates_first ? std::pair("H = A F", "dF = A^T dH") : std::pair("Q = A U", "dU = A^T dQ");
  auto const plan = [&](char const* formula, pmm::Flow flow) {
    return pmm::AggregatePlan{formula, p.adjacency,  roles,  cells,       width,
                              flow,    formats.wire, needed, hidden_axes, formats.operand};
  };
  return {plan(forward_formula, pmm::Flow::forward), plan(backward_formula, backward)};
}

LinearProducts products_of(LinearPlan const& p, runtime::Wire wire) {
  pmm::ProductOptions const rounded{.result_wire = wire};
  return {.product = {"C = A W", Form::product, p.input, p.weight, p.output, rounded},
          .input_back = {"dA = dC W^T", Form::left_grad, p.output, p.weight, p.input, rounded},
          .weight_back = {"dW = A^T dC", Form::right_grad, p.input, p.output, gradient_of(p.weight), {}}};
}

} // namespace orthant::models
