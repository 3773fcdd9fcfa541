// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/relation_step.hpp"

#include "models/gnn/plan/network_products.hpp"

#include <algorithm>

namespace orthant::models {

namespace {

/// Moves of rows of `width` columns that axis b can split anywhere.
pmm::BlockRowsPlan moves(NetworkLayerPlan const& layer, pmm::CellSizes const& cells, pmm::BlockSide side,
                         std::int64_t width, runtime::Wire wire) {
  return {layer.owners->roles, cells, side, {width, 1}, width, 0, std::nullopt, wire};
}

std::int64_t num_padded(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                        pmm::Placement const& placement) {
  auto const block = block_of(shape, coordinates, placement);
  auto const is_sharded = placement.layout.storage == pmm::Storage::flat_sharded;
  return is_sharded ? block.num_padded * shape.size(placement.layout.third()) : block.size();
}

} // namespace

RelationSteps::RelationSteps(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                             NetworkLayerPlan const& layer, pmm::CellSizes const& cells,
                             RelationCounts const& counts, runtime::Wire of_messages)
    : adjacency(layer.adjacency),
      relations(*layer.relations),
      wire(of_messages) {
  auto const& weights = relations.weights;
  sizes.pairs = counts.pairs;
  sizes.self_pairs = counts.self_pairs;
  sizes.root_pairs = counts.root_pairs;
  sizes.entries = counts.entries;
  sizes.out = weights.out;
  if (layer.owners) {
    auto const inputs = moves(layer, cells, pmm::BlockSide::columns, weights.in, wire);
    auto const results = moves(layer, cells, pmm::BlockSide::rows, weights.out, wire);
    owners = Owners{inputs, results, {shape, coordinates, inputs}, {shape, coordinates, results}};
    sizes.columns = owners->inputs_steps.num_block;
    sizes.rows = owners->results_steps.num_block;
    over_parts = layer.owners->roles.b;
    sizes.inputs = runtime::balanced_range(weights.in, shape.size(over_parts),
                                           rank_within(shape, coordinates, over_parts));
  } else {
    auto const block = block_of(shape, coordinates, adjacency);
    sizes.rows = block.rows.size();
    sizes.columns = block.columns.size();
    sizes.inputs = block_of(shape, coordinates, layer.input).columns;
    over_parts = adjacency.layout.columns;
    over_results = layer.input.layout.columns;
    over_inputs = adjacency.layout.rows;
  }
  num_parts = shape.size(over_parts);
  part = rank_within(shape, coordinates, over_parts);
  for (int i = 0; i < num_parts; ++i)
    part_counts.push_back(sizes.rows * runtime::balanced_range(weights.out, num_parts, i).size());
  for (std::size_t i = 0; i < num_relation_parts; ++i)
    if (auto const& placement = relations.parts[i]; placement.extents.rows > 0)
      lengths[i] = num_padded(shape, coordinates, placement);
  gathers_weights = !owners && shape.size(pmm::group_axes) > 1;
}

void RelationScratchPlan::add(RelationSteps const& s, bool needs_input_gradient) {
  auto const grow = [](std::int64_t& length, std::int64_t wanted) { length = std::max(length, wanted); };
  auto const is_split = s.num_parts > 1;
  auto const& weights = s.relations.weights;
  auto const expanded = weights.expanded();
  if (s.copies_input()) grow(input, s.sizes.num_inputs());
  grow(products, s.sizes.num_products());
  if (needs_input_gradient) grow(means_gradient, s.sizes.num_means());
  if (is_split) grow(result, s.sizes.num_results());
  if (is_split) grow(parts, s.sizes.num_results());
  if (s.copies_result()) grow(in_part, s.num_in_part());
  if (!weights.is_full()) grow(gradient, expanded.rows * expanded.columns);
  for (std::size_t i = 0; i < num_relation_parts && s.gathers_weights; ++i)
    grow(gradients[i], s.lengths[i]);
}

void RelationScratchPlan::list(pmm::StepPlan& step) const {
  for (auto const& [label, length] : {std::pair("orthant::models::relation_input", input),
                                      {"orthant::models::relation_products", products},
                                      {"orthant::models::relation_means_gradient", means_gradient},
                                      {"orthant::models::relation_result", result},
                                      {"orthant::models::relation_parts", parts},
                                      {"orthant::models::relation_in_part", in_part},
                                      {"orthant::models::relation_gradient", gradient}})
    step.add_array(label, step.scalar_bytes(length));
  for (std::size_t i = 0; i < num_relation_parts; ++i)
    step.add_array(relation_gradient_labels[i], step.scalar_bytes(gradients[i]));
}

RelationMemoryPlan memory_of(RelationSteps const& s) {
  auto const& weights = s.relations.weights;
  auto const expanded = weights.expanded();
  return {s.sizes.num_means(), s.gathers_weights ? s.lengths : ByRelationPart<std::int64_t>{},
          weights.is_full() ? 0 : expanded.rows * expanded.columns};
}

namespace {

/// Cells in the schedule `rows`: of the kept rows, of the batch or of the whole graph.
pmm::CellSizes cells_in(pmm::StepPlan const& step, NetworkLayerPlan const& layer,
                        NetworkEpochTraits const& traits) {
  if (!layer.owners) return {};
  return traits.cells && !layer.owners->kept ? *traits.cells : cells_of(step, layer);
}

void plan_arrays_of_attention(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits,
                              runtime::Wire wire) {
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

} // namespace

RelationSteps relation_steps_of(pmm::StepPlan const& step, NetworkLayerPlan const& layer,
                                NetworkEpochTraits const& traits, runtime::Wire wire) {
  auto const cells = cells_in(step, layer, traits);
  if (layer.owners && layer.owners->kept) {
    auto const& kept = layer.owners->kept;
    RelationCounts const counts{kept->num_pairs, kept->num_self_pairs, kept->num_root_pairs,
                                kept->num_nonzeros};
    return {step.shape(), step.coordinates(), layer, cells, counts, wire};
  }
  auto const [self_pairs, root_pairs] = traits.num_self_pairs(layer.adjacency);
  RelationCounts const counts{traits.num_pairs(layer.adjacency) + self_pairs, self_pairs, root_pairs,
                              traits.num_nonzeros(layer.adjacency) + self_pairs};
  return {step.shape(), step.coordinates(), layer, cells, counts, wire};
}

namespace {

/// Parameters of a layer, with the padding of flat shards.
void plan_parameter_calls(pmm::StepPlan& step, RelationSteps const& s, runtime::Operation operation) {
  if (!s.gathers_weights) return;
  for (auto const count : s.lengths)
    if (count > 0) step.add_call(operation, pmm::group_axes, step.scalar_bytes(count));
}

} // namespace

void plan_relations(pmm::StepPlan& step, RelationSteps const& s) {
  using runtime::Operation;
  plan_parameter_calls(step, s, Operation::all_gather);
  plan_expand_weights(step, s.relations.weights);
  if (s.owners) plan_bring(step, s.owners->inputs);
  plan_relation_product(step, s.adjacency, s.sizes, s.relations.weights);
  auto const result_bytes = step.wire_bytes(s.part_counts, s.wire);
  auto const part_bytes = step.wire_bytes(s.num_in_part(), s.wire);
  if (s.num_parts > 1) {
    pmm::plan_split_columns(step, s.sizes.rows, s.sizes.out);
    step.add_call(Operation::reduce_scatter, s.over_parts, result_bytes, part_bytes);
  }
  if (s.owners) return plan_bring_back(step, s.owners->results);
  if (s.num_in_part() > 0) step.add_call(Operation::all_reduce, s.over_results, part_bytes);
}

void plan_relations_backward(pmm::StepPlan& step, RelationSteps const& s, bool needs_input_gradient) {
  using runtime::Operation;
  if (s.owners) plan_bring(step, s.owners->results);
  if (s.num_parts > 1) {
    step.add_call(Operation::all_gather, s.over_parts, step.wire_bytes(s.part_counts, s.wire));
    pmm::plan_split_columns(step, s.sizes.rows, s.sizes.out);
  }
  plan_relation_product_backward(step, s.adjacency, s.sizes, s.relations.weights, needs_input_gradient);
  if (needs_input_gradient) {
    if (s.owners)
      plan_bring_back(step, s.owners->inputs);
    else if (s.sizes.num_inputs() > 0)
      step.add_call(Operation::all_reduce, s.over_inputs, step.wire_bytes(s.sizes.num_inputs(), s.wire));
  }
  plan_contract_gradient(step, s.relations.weights);
  plan_parameter_calls(step, s, Operation::reduce_scatter);
}

void plan_relation_arrays(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits,
                          runtime::Wire wire) {
  plan_arrays_of_attention(step, plan, traits, wire);
  RelationScratchPlan scratch;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    if (!layer.relations || layer.relations->attention) continue;
    auto const steps = relation_steps_of(step, layer, traits, wire);
    scratch.add(steps, needs_input_gradient(plan, l));
    auto const memory = memory_of(steps);
    step.add_array("orthant::models::relation_means", step.scalar_bytes(memory.means));
    for (std::size_t i = 0; i < num_relation_parts; ++i)
      step.add_array(relation_labels[i], step.scalar_bytes(memory.gathered[i]));
    step.add_array("orthant::models::relation_expanded", step.scalar_bytes(memory.expanded));
  }
  scratch.list(step);
}

void reserve_relations(pmm::WorkspacePlan& work, pmm::StepPlan const& step, NetworkPlan const& plan,
                       pmm::RelationEdgeCounts const& counts) {
  constexpr auto native = runtime::Wire::native;
  NetworkEpochTraits traits;
  traits.num_relation_edges = [&](auto const&) { return counts; };
  for (auto const& layer : plan.layers) {
    if (!layer.relations || !layer.owners) continue;
    if (layer.relations->attention) {
      reserve_relation_attention(work, relation_attention_steps_of(step, layer, traits, native));
      continue;
    }
    auto const owners = *relation_steps_of(step, layer, traits, native).owners;
    reserve_block_rows(work, owners.inputs_steps);
    reserve_block_rows(work, owners.results_steps);
  }
}

namespace {

using runtime::Operation;

RelationSide side_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                     NetworkLayerPlan const& layer, pmm::CellSizes const& cells, pmm::BlockSide side,
                     runtime::Wire wire) {
  auto const in = layer.relations->attention->in;
  auto const num_parts = shape.size(layer.owners.value().roles.b);
  auto const rows = moves(layer, cells, side, in, wire);
  RelationSide made{rows, {shape, coordinates, rows}, {}};
  for (int i = 0; i < num_parts; ++i)
    made.part_counts.push_back(made.steps.num_block * runtime::balanced_range(in, num_parts, i).size());
  return made;
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
      selects_rows(!keeps_rows(layer)),
      result{layer.owners->roles,     cells, pmm::BlockSide::rows, shape().heads,
             shape().heads.columns(), 0,     std::nullopt,         of_messages},
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
          s.targets.has_copy() ? s.targets.num_whole()
          : s.selects_rows     ? s.num_own_targets()
                               : 0};
}

void RelationAttentionScratchPlan::add(RelationAttentionSteps const& s, bool needs_input_gradient) {
  auto const is_split = s.sources.num_parts() > 1;
  auto const of_gradient = [&](std::int64_t count) { return needs_input_gradient ? count : 0; };
  auto const of_layer = layer_lengths_of(s);
  auto const picked = s.sizes.num_picked(s.shape());
  auto const larger = [&](std::int64_t (RelationSide::*number)() const) {
    return is_split ? std::max((s.sources.*number)(), (s.targets.*number)()) : 0;
  };
  auto const own_rows = s.targets.has_copy() && (needs_input_gradient || s.selects_rows);
  std::array<std::int64_t, num_shared_arrays> needed{}; // the first are those of the layer
  std::copy_n(of_layer.begin(), static_cast<std::size_t>(SharedArray::of_columns), needed.begin());
  auto const set = [&](SharedArray array, std::int64_t length) {
    needed[static_cast<std::size_t>(array)] = length;
  };
  set(SharedArray::of_columns, of_gradient(s.sources.num_whole()));
  set(SharedArray::of_rows, of_gradient(s.targets.num_whole()));
  set(SharedArray::picked, picked);
  set(SharedArray::picked_gradient, of_gradient(picked));
  set(SharedArray::ends_by_relation, s.sizes.num_target_ends());
  set(SharedArray::part, larger(&RelationSide::num_in_part));
  set(SharedArray::parts, larger(&RelationSide::num_whole));
  set(SharedArray::own_rows, own_rows ? s.num_own_targets() : 0);
  set(SharedArray::result, s.result_steps.has_copy() ? s.sizes.num_results(s.shape()) : 0);
  set(SharedArray::type_biases, s.num_type_sums());
  for (std::size_t i = 0; i < needed.size(); ++i)
    lengths[i] = std::max(lengths[i], needed[i]);
}

RelationAttentionSteps relation_attention_steps_of(pmm::StepPlan const& step, NetworkLayerPlan const& layer,
                                                   NetworkEpochTraits const& traits, runtime::Wire wire) {
  return {step.shape(),
          step.coordinates(),
          layer,
          cells_in(step, layer, traits),
          layer.owners->kept ? layer.owners->kept->relation_edges
                             : traits.num_relation_edges(layer.adjacency),
          wire};
}

pmm::LocalPass pass_of_input_sum(RelationAttentionSteps const& s, std::int64_t scalar_bytes) {
  auto const of_list =
      s.selects_rows ? (s.sources.steps.num_own + 1) * std::int64_t{sizeof(runtime::Offset)} : 0;
  auto const of_inputs = s.num_own_inputs() * scalar_bytes;
  return {"add_input_gradients", of_inputs + s.num_own_targets() * scalar_bytes + of_list, of_inputs};
}

void plan_attention_operand(pmm::StepPlan& step, RelationAttentionSteps const& s) {
  pmm::plan_relation_edges(step, s.sizes.rows, s.sizes.pairs);
  step.add_array("orthant::models::types_of_rows", step.scalar_bytes(s.num_own() * s.relations.num_types));
}

namespace {

void plan_bring_side(pmm::StepPlan& step, RelationAttentionSteps const& s, RelationSide const& side) {
  plan_bring(step, side.rows);
  if (side.num_parts() == 1) return;
  step.add_call(Operation::all_gather, s.over_parts, step.wire_bytes(side.part_counts, s.wire));
  pmm::plan_split_columns(step, side.steps.num_block, side.steps.width);
}

void plan_return_side(pmm::StepPlan& step, RelationAttentionSteps const& s, RelationSide const& side) {
  if (side.num_parts() > 1) {
    pmm::plan_split_columns(step, side.steps.num_block, side.steps.width);
    step.add_call(Operation::reduce_scatter, s.over_parts, step.wire_bytes(side.part_counts, s.wire),
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
  if (s.selects_rows) pmm::plan_pick_rows(step, s.num_own(), s.shape().in);
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
  step.add_pass(pass_of_input_sum(s, step.scalar_bytes(1)));
}

void plan_relation_layer(pmm::StepPlan& step, NetworkLayerPlan const& layer, NetworkEpochTraits const& traits,
                         runtime::Wire wire, bool drops_coefficients) {
  if (layer.relations->attention)
    plan_relation_attention(step, relation_attention_steps_of(step, layer, traits, wire), drops_coefficients);
  else
    plan_relations(step, relation_steps_of(step, layer, traits, wire));
}
void plan_relation_layer_backward(pmm::StepPlan& step, NetworkLayerPlan const& layer,
                                  NetworkEpochTraits const& traits, runtime::Wire wire,
                                  bool needs_input_gradient) {
  if (layer.relations->attention)
    plan_relation_attention_backward(step, relation_attention_steps_of(step, layer, traits, wire),
                                     needs_input_gradient);
  else
    plan_relations_backward(step, relation_steps_of(step, layer, traits, wire), needs_input_gradient);
}

} // namespace orthant::models
