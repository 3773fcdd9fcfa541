// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/attention_step.hpp"

#include "models/gnn/plan/network_products.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "pmm/edges/edge_products.hpp"
#include "runtime/error.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

/// Plans of the moves of one layer.
struct Moves {
  AttentionPlan const& plan;
  pmm::Roles const& roles;
  pmm::CellSizes const& cells;
  pmm::NeededCountsOfAxes const& needed;
  runtime::Wire wire;

  [[nodiscard]] pmm::BlockRowsPlan of(pmm::BlockSide side, bool is_of_ends, std::int64_t stride,
                                      std::int64_t first_column) const {
    return {roles,
            cells,
            side,
            {plan.num_heads, is_of_ends ? 1 : plan.head_width},
            stride,
            first_column,
            side == pmm::BlockSide::columns ? needed.over_c : needed.over_a,
            wire};
  }
  [[nodiscard]] pmm::BlockRowsPlan of_rows() const {
    if (plan.kind == AttentionKind::gat) return of(pmm::BlockSide::rows, true, plan.num_heads, 0);
    return of(pmm::BlockSide::rows, false, plan.num_projected(),
              (plan.has_dots() ? 2 : 1) * plan.heads().columns());
  }
  [[nodiscard]] pmm::BlockRowsPlan of_columns() const {
    if (!plan.has_dots()) return of(pmm::BlockSide::columns, true, plan.num_heads, 0);
    return of(pmm::BlockSide::columns, false, plan.num_projected(), plan.heads().columns());
  }
};

} // namespace

AttentionPlan attention_of(AttentionShape const& shape, std::int64_t num_columns, bool makes_logits) {
  if (makes_logits)
    return {shape.kind, shape.num_output_heads, num_columns, shape.num_output_heads > 1,
            shape.num_edge_features};
  ORTHANT_REQUIRE(num_columns % shape.num_heads == 0, num_columns, " columns in ", shape.num_heads, " heads");
  return {shape.kind, shape.num_heads, num_columns / shape.num_heads, false, shape.num_edge_features};
}

AttentionSteps::AttentionSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                               NetworkLayerPlan const& layer, pmm::CellSizes const& cells,
                               std::int64_t num_edges, pmm::NeededCountsOfAxes const& needed,
                               runtime::Wire wire)
    : plan(layer.attention.value()),
      softmax_axis(layer.owners.value().roles.a),
      adjacency(layer.adjacency),
      result(Moves{plan, layer.owners->roles, cells, needed, wire}.of(pmm::BlockSide::rows, false,
                                                                      plan.heads().columns(), 0)),
      values(Moves{plan, layer.owners->roles, cells, needed, wire}.of(pmm::BlockSide::columns, false,
                                                                      plan.num_projected(), 0)),
      of_rows(Moves{plan, layer.owners->roles, cells, needed, wire}.of_rows()),
      of_columns(Moves{plan, layer.owners->roles, cells, needed, wire}.of_columns()),
      result_steps(shape, coordinates, result),
      values_steps(shape, coordinates, values),
      rows_steps(shape, coordinates, of_rows),
      columns_steps(shape, coordinates, of_columns),
      counts{result_steps.num_block, values_steps.num_block, num_edges, plan.num_edge_features},
      heads(result_steps.part),
      first_head(result_steps.first_head),
      num_own(values_steps.num_own),
      num_results(result_steps.num_own),
      selects_rows(!keeps_rows(layer)) {}

AttentionMemoryPlan memory_of(AttentionSteps const& s) {
  auto const copied = [](pmm::BlockRowsSteps const& steps) {
    return steps.has_copy() ? steps.num_in_block() : std::int64_t{0};
  };
  auto const of_rows = s.rows_steps.has_copy() ? copied(s.rows_steps) : s.num_selected();
  return {copied(s.values_steps), of_rows, s.plan.is_dynamic() ? 0 : copied(s.columns_steps),
          2 * s.num_ends(), s.num_coefficients()};
}

void AttentionScratchPlan::add(AttentionSteps const& s) {
  auto const& plan = s.plan;
  if (plan.averages_heads) sums = std::max(sums, s.num_results * plan.heads().columns());
  result = std::max(result, s.result_steps.has_copy() ? s.result_steps.num_in_block() : 0);
  values = std::max(values, s.values_steps.has_copy() ? s.values_steps.num_in_block() : 0);
  ends = std::max(ends, s.num_ends_gradient() + s.num_selected());
  coefficients = std::max(coefficients, s.num_coefficients());
}

void AttentionScratchPlan::list(pmm::StepPlan& step) const {
  for (auto const& [label, count] : {std::pair("orthant::models::attention_sums", sums),
                                     {"orthant::models::attention_result", result},
                                     {"orthant::models::attention_values_gradient", values},
                                     {"orthant::models::attention_ends_gradient", ends},
                                     {"orthant::models::coefficients_gradient", coefficients}})
    step.add_array(label, step.scalar_bytes(count));
}

namespace {

/// Lists the arrays that a layer keeps for its backward pass.
void plan_layer_arrays(pmm::StepPlan& step, AttentionSteps const& steps) {
  auto const memory = memory_of(steps);
  for (auto const& [label, count] : {std::pair("orthant::models::attention_values", memory.values),
                                     {"orthant::models::attention_rows", memory.of_rows},
                                     {"orthant::models::attention_columns", memory.of_columns},
                                     {"orthant::models::attention_ends", memory.ends},
                                     {"orthant::models::coefficients", memory.coefficients}})
    step.add_array(label, step.scalar_bytes(count));
}

/// Steps of all attention layers of a network whose whole block has these cells and edges.
std::vector<AttentionSteps> steps_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                                     pmm::CellSizes const& cells, std::int64_t num_edges) {
  std::vector<AttentionSteps> all;
  for (auto const& layer : plan.layers) {
    if (!layer.attention) continue;
    auto const& kept = layer.owners->kept;
    all.emplace_back(step.shape(), step.coordinates(), layer, cells_of(layer, cells),
                     kept ? kept->num_nonzeros : num_edges);
  }
  return all;
}

/// Steps of all attention layers on the whole graph.
std::vector<AttentionSteps> steps_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                                     std::int64_t num_edges) {
  if (!plan.layers.front().attention) return {};
  return steps_of(step, plan, cells_of(step, plan.layers.front()), num_edges);
}

} // namespace

AttentionScratchPlan attention_scratch_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                                          pmm::CellSizes const& cells, std::int64_t num_edges) {
  AttentionScratchPlan scratch;
  for (auto const& steps : steps_of(step, plan, cells, num_edges))
    scratch.add(steps);
  return scratch;
}

void reserve_attention(pmm::WorkspacePlan& work, pmm::StepPlan const& step, NetworkPlan const& plan) {
  for (auto const& steps : steps_of(step, plan, 0))
    reserve_attention(work, steps);
}

void plan_attention_arrays(pmm::StepPlan& step, NetworkPlan const& plan, std::int64_t num_edges) {
  if (auto const& first = plan.layers.front(); first.attention)
    attention_scratch_of(step, plan, cells_of(step, first), num_edges).list(step);
  for (auto const& steps : steps_of(step, plan, num_edges))
    plan_layer_arrays(step, steps);
}

Dropout dropout_of_coefficients(NetworkSettings const& settings, std::uint64_t step, std::size_t l) {
  constexpr auto first_layer = std::uint32_t{1} << 31;
  auto const layer = first_layer + static_cast<std::uint32_t>(l);
  return {settings.attention_dropout,
          runtime::RandomStream(settings.seed, runtime::Purpose::dropout, step, layer)};
}

AttentionPasses passes_of(AttentionSteps const& s, std::int64_t scalar_bytes) {
  auto const& plan = s.plan;
  auto const all = s.num_own * plan.heads().columns() * scalar_bytes;
  auto const results = s.num_results * plan.heads().columns() * scalar_bytes;
  auto const mean = s.num_results * plan.head_width * scalar_bytes;
  auto const ends = 2 * s.num_ends() * scalar_bytes;
  auto const vectors = plan.num_heads * plan.num_vector() * scalar_bytes;
  auto const terms = s.counts.rows * s.heads.columns() * scalar_bytes;
  auto const outputs = s.num_own * plan.num_outputs() * scalar_bytes;
  auto const weight = s.counts.features * s.heads.columns() * scalar_bytes; // of this rank's heads
  auto const ends_of_edges = (s.counts.rows + s.counts.columns) * s.heads.columns() * scalar_bytes;
  auto const of_edges = s.counts.edges * (s.counts.features + s.heads.count) * scalar_bytes;
  auto const edge_parameters =
      (plan.edge_weight().rows * plan.edge_weight().columns + plan.edge_vectors().rows * plan.head_width) *
      scalar_bytes;
  if (plan.has_dots())
    return {.ends = {"shift_projected", s.num_own > 0 ? 2 * all + vectors : 0, 2 * all},
            .ends_backward = {"shift_projected_backward", all + outputs, all + outputs},
            .vectors = {"sum_attention_vectors", 2 * all, vectors},
            .average = {"average_heads", all, mean},
            .spread = {"spread_heads", mean, all},
            .skip = {"add_skipped", 2 * outputs, outputs}};
  return {.ends = {"attention_ends", s.num_own > 0 ? all + vectors : 0, ends},
          .ends_backward = {"attention_ends_backward", s.num_own > 0 ? all + ends + vectors : 0, all},
          .vectors = {"sum_attention_vectors", plan.is_dynamic() ? terms : all + ends, vectors},
          .average = {"average_heads", results, mean},
          .spread = {"spread_heads", mean, results},
          .skip = {},
          .edge_factors = {"edge_factors", weight, s.num_edge_factors() * scalar_bytes},
          .edge_parameters = {"edge_parameters", of_edges + weight + (plan.is_dynamic() ? ends_of_edges : 0),
                              edge_parameters}};
}

void plan_attention(pmm::StepPlan& step, AttentionSteps const& s, bool drops_coefficients, bool drops_edges) {
  auto const passes = passes_of(s, step.scalar_bytes(1));
  if (!s.plan.is_dynamic()) step.add_pass(passes.ends);
  if (s.selects_rows) pmm::plan_pick_rows(step, s.num_results, s.num_selected_columns());
  plan_bring(step, s.of_rows);
  if (!s.plan.is_dynamic()) plan_bring(step, s.of_columns);
  plan_bring(step, s.values);
  if (s.counts.features > 0 && !s.plan.is_dynamic()) step.add_pass(passes.edge_factors);
  if (s.plan.is_dynamic())
    plan_dynamic_scores(step, s.counts, s.heads);
  else if (s.plan.has_dots())
    plan_edge_product(step, "scores = Q K^T", pmm::Form::left_grad, s.counts, s.heads.columns(), s.adjacency);
  else
    plan_static_scores(step, s.counts, s.heads.count);
  if (drops_edges) plan_fill_dropped(step, s.counts, s.heads.count);
  plan_edge_softmax(step, s.softmax_axis, s.counts, s.heads.count);
  if (drops_edges) plan_fill_dropped(step, s.counts, s.heads.count);
  if (drops_coefficients) plan_drop_edges(step, s.counts, s.heads.count);
  plan_edge_product(step, "Q = alpha V", pmm::Form::product, s.counts, s.heads.columns(), s.adjacency);
  plan_bring_back(step, s.result);
  if (s.plan.averages_heads) step.add_pass(passes.average);
  if (s.plan.has_dots()) step.add_pass(passes.skip);
}

namespace {

void plan_rows_back(pmm::StepPlan& step, AttentionSteps const& s) {
  plan_bring_back(step, s.of_rows);
  if (s.selects_rows) pmm::plan_add_rows(step, s.num_own, s.num_results, s.num_selected_columns());
}

} // namespace

void plan_attention_backward(pmm::StepPlan& step, AttentionSteps const& s) {
  auto const passes = passes_of(s, step.scalar_bytes(1));
  if (s.plan.averages_heads) step.add_pass(passes.spread);
  plan_bring(step, s.result);
  plan_edge_product(step, "dalpha = dQ V^T", pmm::Form::left_grad, s.counts, s.heads.columns(), s.adjacency);
  plan_edge_softmax_backward(step, s.softmax_axis, s.counts, s.heads.count);
  plan_edge_product(step, "dV = alpha^T dQ", pmm::Form::right_grad, s.counts, s.heads.columns(), s.adjacency);
  if (s.plan.is_dynamic()) {
    plan_dynamic_scores_backward(step, s.counts, s.heads);
    if (s.counts.features > 0) step.add_pass(passes.edge_parameters);
    plan_rows_back(step, s);
    plan_bring_back(step, s.values);
    step.add_pass(passes.vectors);
    return;
  }
  if (s.plan.has_dots()) {
    auto const width = s.heads.columns();
    plan_edge_product(step, "dQ = dscores K", pmm::Form::product, s.counts, width, s.adjacency);
    plan_edge_product(step, "dK = dscores^T Q", pmm::Form::right_grad, s.counts, width, s.adjacency);
  } else {
    if (s.counts.features > 0) step.add_pass(passes.edge_factors);
    plan_static_scores_backward(step, s.counts, s.heads.count);
    if (s.counts.features > 0) step.add_pass(passes.edge_parameters);
  }
  plan_rows_back(step, s);
  plan_bring_back(step, s.of_columns);
  plan_bring_back(step, s.values);
  if (s.plan.has_dots()) step.add_pass(passes.ends_backward);
  step.add_pass(passes.vectors);
  if (!s.plan.has_dots()) step.add_pass(passes.ends_backward);
}

} // namespace orthant::models
