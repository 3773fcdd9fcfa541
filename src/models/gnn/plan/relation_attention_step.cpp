// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/relation_attention_step.hpp"

#include "models/gnn/plan/network_products.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

using runtime::Operation;

RelationSide side_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                     NetworkLayerPlan const& layer, pmm::CellSizes const& cells, pmm::BlockSide side,
                     runtime::Wire wire) {
  auto const in = layer.relations->attention->in;
  auto const& roles = layer.owners.value().roles;
  pmm::BlockRowsPlan const rows{roles, cells, side, {in, 1}, in, 0, std::nullopt, wire};
  RelationSide made{rows, {shape, coordinates, rows}, {}};
  for (int i = 0; i < shape.size(roles.b); ++i)
    made.part_counts.push_back(made.steps.num_block *
                               runtime::balanced_range(in, shape.size(roles.b), i).size());
  return made;
}

pmm::BlockRowsPlan result_of(NetworkLayerPlan const& layer, pmm::CellSizes const& cells, runtime::Wire wire) {
  auto const& heads = layer.relations->attention->heads;
  return {layer.owners->roles, cells, pmm::BlockSide::rows, heads, heads.columns(), 0, std::nullopt, wire};
}

} // namespace

RelationAttentionSteps::RelationAttentionSteps(pmm::GridShape const& shape_of_grid,
                                               pmm::Coordinates const& coordinates,
                                               NetworkLayerPlan const& layer, pmm::CellSizes const& cells,
                                               pmm::RelationEdgeCounts const& counts,
                                               runtime::Wire of_messages)
    : adjacency(layer.adjacency),
      relations(*layer.relations),
      wire(of_messages),
      over_edges(layer.owners.value().roles.a),
      over_parts(layer.owners->roles.b),
      sources(side_of(shape_of_grid, coordinates, layer, cells, pmm::BlockSide::columns, of_messages)),
      targets(side_of(shape_of_grid, coordinates, layer, cells, pmm::BlockSide::rows, of_messages)),
      result(result_of(layer, cells, of_messages)),
      result_steps(shape_of_grid, coordinates, result),
      sizes{targets.steps.num_block, sources.steps.num_block, counts, result_steps.first_head,
            result_steps.part.count} {}

std::array<std::int64_t, num_layer_arrays> layer_lengths_of(RelationAttentionSteps const& s) {
  return {s.sizes.num_vectors(s.shape()),
          s.sizes.num_folded(s.shape()),
          s.sizes.num_projected(s.shape()),
          s.sizes.num_target_ends(),
          s.sizes.num_source_ends(),
          s.sizes.num_coefficients(),
          s.sources.has_copy() ? s.sources.num_whole() : 0,
          s.targets.has_copy() ? s.targets.num_whole() : 0};
}

void RelationAttentionScratchPlan::add(RelationAttentionSteps const& s, bool needs_input_gradient) {
  auto const is_split = s.sources.num_parts() > 1;
  auto const of_gradient = [&](std::int64_t count) { return needs_input_gradient ? count : 0; };
  auto const of_layer = layer_lengths_of(s);
  auto const picked = s.sizes.num_picked(s.shape());
  auto const larger = [&](std::int64_t (RelationSide::*number)() const) {
    return is_split ? std::max((s.sources.*number)(), (s.targets.*number)()) : 0;
  };
  std::array<std::int64_t, num_shared_arrays> const needed{
      of_layer[0],
      of_layer[1],
      of_layer[2],
      of_layer[3],
      of_layer[4],
      of_layer[5],
      of_gradient(s.sources.num_whole()),
      of_gradient(s.targets.num_whole()),
      picked,
      of_gradient(picked),
      s.sizes.num_target_ends(),
      larger(&RelationSide::num_in_part),
      larger(&RelationSide::num_whole),
      of_gradient(s.targets.has_copy() ? s.num_own_inputs() : 0),
      s.result_steps.has_copy() ? s.sizes.num_results(s.shape()) : 0,
      s.num_type_sums()};
  for (std::size_t i = 0; i < needed.size(); ++i)
    lengths[i] = std::max(lengths[i], needed[i]);
}

RelationAttentionSteps relation_attention_steps_of(pmm::StepPlan const& step, NetworkLayerPlan const& layer,
                                                   NetworkEpochTraits const& traits, runtime::Wire wire) {
  return {step.shape(),
          step.coordinates(),
          layer,
          cells_of(step, layer),
          traits.num_relation_edges(layer.adjacency),
          wire};
}

void reserve_relation_attention(pmm::WorkspacePlan& work, pmm::StepPlan const& step, NetworkPlan const& plan,
                                pmm::RelationEdgeCounts const& counts) {
  for (auto const& layer : plan.layers)
    if (layer.relations && layer.relations->attention)
      reserve_relation_attention(work, RelationAttentionSteps(step.shape(), step.coordinates(), layer,
                                                              cells_of(step, layer), counts,
                                                              runtime::Wire::native));
}

pmm::LocalPass pass_of_input_sum(std::int64_t bytes) {
  return {"add_input_gradients", 2 * bytes, bytes};
}

namespace {

void plan_bring_side(pmm::StepPlan& step, RelationAttentionSteps const& s, RelationSide const& side) {
  plan_bring(step, side.rows);
  if (side.num_parts() == 1) return;
  step.add_call(Operation::all_gather, s.over_parts, step.wire_bytes(side.num_whole(), s.wire));
  pmm::plan_split_columns(step, side.steps.num_block, side.steps.width);
}

void plan_return_side(pmm::StepPlan& step, RelationAttentionSteps const& s, RelationSide const& side) {
  if (side.num_parts() > 1) {
    pmm::plan_split_columns(step, side.steps.num_block, side.steps.width);
    step.add_call(Operation::reduce_scatter, s.over_parts, step.wire_bytes(side.num_whole(), s.wire),
                  step.wire_bytes(side.num_in_part(), s.wire));
  }
  plan_bring_back(step, side.rows);
}

void plan_biases(pmm::StepPlan& step, RelationAttentionSteps const& s, bool is_backward) {
  if (!s.has_biases()) return;
  auto const [types, out] = std::pair(s.relations.num_types, s.shape().heads.columns());
  auto const form = is_backward ? pmm::Form::right_grad : pmm::Form::product;
  auto const& own = is_backward ? types : s.num_own();
  auto const& sum = is_backward ? s.num_own() : types;
  step.add_product(pmm::dense_product(is_backward ? "dB = T^T dQ" : "Q = Q + T B", form, own, out, sum));
  auto const relations = s.shape().num_relations;
  step.add_product(pmm::dense_product(is_backward ? "db = M^T dB" : "B = M b", form,
                                      is_backward ? relations : types, out, is_backward ? types : relations));
}

} // namespace

void plan_relation_attention(pmm::StepPlan& step, RelationAttentionSteps const& s, bool drops_coefficients) {
  plan_bring_side(step, s, s.sources);
  plan_bring_side(step, s, s.targets);
  pmm::plan_relation_attention(step, s.over_edges, s.adjacency, s.sizes, s.shape(), drops_coefficients);
  plan_bring_back(step, s.result);
  plan_biases(step, s, false);
}

void plan_relation_attention_backward(pmm::StepPlan& step, RelationAttentionSteps const& s,
                                      bool needs_input_gradient) {
  plan_biases(step, s, true);
  plan_bring(step, s.result);
  pmm::plan_relation_attention_backward(step, s.over_edges, s.adjacency, s.sizes, s.shape(),
                                        needs_input_gradient);
  if (!needs_input_gradient) return;
  if (s.sources.has_copy()) plan_return_side(step, s, s.sources);
  if (s.targets.has_copy()) plan_return_side(step, s, s.targets);
  step.add_pass(pass_of_input_sum(step.scalar_bytes(s.num_own_inputs())));
}

void plan_relation_attention_arrays(pmm::StepPlan& step, NetworkPlan const& plan,
                                    NetworkEpochTraits const& traits, runtime::Wire wire) {
  RelationAttentionScratchPlan scratch;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    if (!layer.relations || !layer.relations->attention) continue;
    auto const steps = relation_attention_steps_of(step, layer, traits, wire);
    scratch.add(steps, needs_input_gradient(plan, l));
    auto const lengths = layer_lengths_of(steps);
    for (std::size_t i = 0; i < num_layer_arrays; ++i)
      step.add_array(layer_array_labels[i], step.scalar_bytes(lengths[i]));
    if (steps.has_biases())
      step.add_array("orthant::models::relation_targets",
                     step.scalar_bytes(steps.relations.num_types * steps.shape().num_relations));
  }
  for (std::size_t i = 0; i < num_shared_arrays; ++i)
    step.add_array(shared_array_labels[i], step.scalar_bytes(scratch.lengths[i]));
}

} // namespace orthant::models
