// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/network_products.hpp"

#include "pmm/edges/edge_products.hpp"

#include <type_traits>

namespace orthant::models {
namespace {

/// Moves of rows whose columns can be split anywhere, as if each column were a head.
pmm::BlockRowsPlan moves(MaximumPlan const& plan, pmm::CellSizes const& cells, pmm::BlockSide side) {
  return {plan.roles,
          cells,
          side,
          {plan.num_columns, 1},
          plan.num_columns,
          0,
          side == pmm::BlockSide::columns ? plan.needed.over_c : plan.needed.over_a,
          plan.wire};
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
  // The pass is listed like a sparse product: it compares and adds as often as that multiplies and adds.
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

void plan_maximum_backward(pmm::StepPlan& step, PlaneMaximumSteps const& s, runtime::Wire wire) {
  plan_edge_product(step, "dF := max^T dP", pmm::Form::right_grad, s.counts, s.width, s.adjacency);
  if (s.num_gradients() > 0)
    step.add_call(runtime::Operation::all_reduce, s.over_gradients(),
                  step.wire_bytes(s.num_gradients(), wire));
}

using pmm::Form;

namespace {

/// Placement of dW. If all ranks have the whole weight, each has a partial dW; NetworkParameters sums all of them at once.
pmm::Placement gradient_of(pmm::Placement weight) {
  if (weight.layout.storage == pmm::Storage::replicated) weight.layout.storage = pmm::Storage::partial;
  return weight;
}

/// Options of a product whose result is stored in the format `result`.
pmm::ProductOptions options_of(NumberFormats const& formats, runtime::Wire result) {
  return {.result_wire = formats.wire, .operand_format = formats.operand, .result_format = result};
}

} // namespace

NetworkLayerProducts products_of(NetworkLayerPlan const& p, NumberFormats const& formats) {
  auto const hidden = options_of(formats, formats.operand);
  auto const output = options_of(formats, formats.of_output(p.makes_logits));
  pmm::ProductOptions const weight{.operand_format = formats.operand};
  if (p.kind == LayerKind::dense)
    return {
        .aggregate = {},
        .transform = {"Q = F W", Form::product, p.input, p.weight, p.output, output},
        .aggregate_back = {},
        .weight_back = {"dW = F^T dQ", Form::right_grad, p.input, p.output, gradient_of(p.weight), weight},
        .transform_back = {"dF = dQ W^T", Form::left_grad, p.output, p.weight, p.input, hidden}};
  if (p.kind == LayerKind::propagation)
    return {.aggregate = {"Q = A F", Form::product, p.adjacency, p.input, p.output, output},
            .transform = {},
            .aggregate_back = {"dF = A^T dQ", Form::right_grad, p.adjacency, p.output, p.input, hidden},
            .weight_back = {},
            .transform_back = {}};
  if (p.aggregates_first)
    return {
        .aggregate = {"H = A F", Form::product, p.adjacency, p.input, p.middle, hidden},
        .transform = {"Q = H W", Form::product, p.middle, p.weight, p.output, output},
        .aggregate_back = {"dF = A^T dH", Form::right_grad, p.adjacency, p.middle, p.input, hidden},
        .weight_back = {"dW = H^T dQ", Form::right_grad, p.middle, p.output, gradient_of(p.weight), weight},
        .transform_back = {"dH = dQ W^T", Form::left_grad, p.output, p.weight, p.middle, hidden}};
  return {.aggregate = {"Q = A U", Form::product, p.adjacency, p.middle, p.output, output},
          .transform = {"U = F W", Form::product, p.input, p.weight, p.middle, hidden},
          .aggregate_back = {"dU = A^T dQ", Form::right_grad, p.adjacency, p.output, p.middle, hidden},
          .weight_back = {"dW = F^T dU", Form::right_grad, p.input, p.middle, gradient_of(p.weight), weight},
          .transform_back = {"dF = dU W^T", Form::left_grad, p.middle, p.weight, p.input, hidden}};
}

SelfProducts self_products_of(NetworkLayerPlan const& p, NumberFormats const& formats) {
  auto const products = products_of(p, formats);
  SelfProducts own{products.transform, products.weight_back, products.transform_back};
  if (p.aggregates_first) {
    own.transform.options.update = pmm::Update::add;
    own.transform.formula = "Q += S W'";
    own.weight_back.formula = "dW' = S^T dQ";
    own.transform_back.formula = "dS = dQ W'^T";
  } else {
    own.transform.formula = "V = F W'";
    own.weight_back.formula = "dW' = F^T dV";
    own.transform_back.formula = "dF' = dV W'^T";
  }
  return own;
}

std::int64_t aggregated_columns(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                NetworkLayerPlan const& p) {
  if (!p.owners) return block_of(shape, coordinates, p.aggregated()).columns.size();
  auto const num_parts = std::int64_t{shape.size(p.owners->roles.b)};
  return (p.aggregated_width() + num_parts - 1) / num_parts;
}

pmm::CellSizes cells_of(pmm::StepPlan const& step, NetworkLayerPlan const& p) {
  if (auto const& kept = p.owners.value().kept) return kept->cells;
  return contiguous_cells(step.shape(), step.coordinates(), p.owners.value().roles, p.input.extents.rows);
}

NetworkLayerAggregates aggregates_of(NetworkLayerPlan const& p, pmm::CellSizes const& cells,
                                     NumberFormats const& formats, pmm::NeededCountsOfAxes const& needed) {
  auto const roles = p.owners.value().roles;
  auto const backward = p.owners->backward;
  auto const hidden_axes = p.owners->hidden_axes;
  auto const width = p.aggregated_width();
  auto const [forward_formula, backward_formula] =
      p.aggregates_first ? std::pair("H = A F", "dF = A^T dH") : std::pair("Q = A U", "dU = A^T dQ");
  auto const plan = [&](char const* formula, pmm::Flow flow, runtime::Wire result) {
    return pmm::AggregatePlan{formula,      p.adjacency, roles,       cells,           width, flow,
                              formats.wire, needed,      hidden_axes, formats.operand, result};
  };
  auto const of_forward = p.aggregates_first ? formats.operand : formats.of_output(p.makes_logits);
  return {plan(forward_formula, pmm::Flow::forward, of_forward),
          plan(backward_formula, backward, formats.operand)};
}

MaximumPlan maximum_plan_of(NetworkLayerPlan const& plan, pmm::NeededCountsOfAxes const& needed,
                            runtime::Wire wire) {
  return {plan.owners.value().roles, plan.adjacency, plan.input.extents.columns, needed, wire};
}

PlaneMaximumSteps plane_maximum_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                   NetworkLayerPlan const& plan, std::int64_t num_edges) {
  return {shape, coordinates, plan.adjacency, plan.input, num_edges};
}

namespace {

/// Calls `list` with the steps of the layer's schedule.
template<class List>
void list_maximum(pmm::StepPlan const& step, NetworkLayerPlan const& layer, pmm::CellSizes const& cells,
                  std::int64_t num_edges, pmm::NeededCountsOfAxes const& needed, runtime::Wire wire,
                  List const& list) {
  auto const& shape = step.shape();
  auto const& at = step.coordinates();
  if (layer.owners)
    list(MaximumSteps(shape, at, maximum_plan_of(layer, needed, wire), cells, num_edges));
  else
    list(plane_maximum_of(shape, at, layer, num_edges));
}

} // namespace

void plan_maximum(pmm::StepPlan& step, NetworkLayerPlan const& layer, pmm::CellSizes const& cells,
                  std::int64_t num_edges, pmm::NeededCountsOfAxes const& needed, runtime::Wire wire) {
  list_maximum(step, layer, cells, num_edges, needed, wire,
               [&](auto const& steps) { plan_maximum(step, steps); });
}

void plan_maximum_backward(pmm::StepPlan& step, NetworkLayerPlan const& layer, pmm::CellSizes const& cells,
                           std::int64_t num_edges, pmm::NeededCountsOfAxes const& needed,
                           runtime::Wire wire) {
  list_maximum(step, layer, cells, num_edges, needed, wire, [&](auto const& steps) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(steps)>, PlaneMaximumSteps>)
      plan_maximum_backward(step, steps, wire);
    else
      plan_maximum_backward(step, steps);
  });
}

LinearProducts products_of(LinearPlan const& p, NumberFormats const& formats) {
  auto const output = options_of(formats, formats.of_output(p.makes_logits));
  return {.product = {"C = A W", Form::product, p.input, p.weight, p.output, output},
          .input_back = {"dA = dC W^T", Form::left_grad, p.output, p.weight, p.input,
                         options_of(formats, formats.operand)},
          .weight_back = {"dW = A^T dC",
                          Form::right_grad,
                          p.input,
                          p.output,
                          gradient_of(p.weight),
                          {.operand_format = formats.operand}}};
}

LinearProducts residual_products_of(LinearPlan const& p, NumberFormats const& formats) {
  auto products = products_of(p, formats);
  products.product.formula = "V = F W_r";
  products.input_back.formula = "dF += dV W_r^T";
  products.weight_back.formula = "dW_r = F^T dV";
  products.input_back.options.update = pmm::Update::add;
  return products;
}

} // namespace orthant::models
