// SPDX-License-Identifier: Apache-2.0
//
// What training on mini-batches holds: the sampler, batches in host memory, and the operands of a batch.
#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/operands/owned_adjacency.hpp"
#include "models/gnn/plan/epoch_traits.hpp"
#include "models/training/parameter_update.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace orthant::models {
namespace {

/// A sampled block is always stored with its transpose. In the schedule `rows` a symmetric block of the whole graph is not.
graph::StoreFacts with_transposes(graph::StoreFacts facts, NetworkPlan const& plan) {
  if (plan.layers.front().owners) facts.is_symmetric = false;
  return facts;
}

pmm::StepPlan list_beside(pmm::StepPlan const& step) {
  return {step.shape(), step.coordinates(), step.scalar_bytes(1)};
}

/// Bytes of the sampler's blocks of A^ with transposes. In the schedule `rows` these are the blocks of the operands. In pmm3d operands
/// share blocks with equal axes, and a sampler shares blocks with equal ranges: the operands' bytes, scaled by the non-zeros of both.
std::int64_t bytes_of_blocks(pmm::StepPlan const& step, graph::StoreFacts const& facts,
                             NetworkPlan const& plan, NetworkEpochTraits const& traits,
                             BatchSizes const& batches) {
  auto blocks = list_beside(step);
  if (plan.layers.front().owners) {
    auto aggregates = plan; // layers that read edges use no transposes, but the sampler's blocks have them
    aggregates.drops_edges = false; // a batch has values
    for (auto& layer : aggregates.layers) {
      layer.attention.reset();
      layer.takes_maximum = false;
      layer.relations = {};
    }
    plan_adjacency(blocks, with_transposes(facts, plan), aggregates, traits);
    return pmm::bytes_held(blocks);
  }
  AdjacencyBlocksPlan listed(facts, traits.num_nonzeros);
  for (auto const& layer : plan.layers)
    if (layer.aggregates()) listed.get(blocks, layer.adjacency, layer.is_even);
  auto const num_entries = [&](std::vector<pmm::Placement> const& placements) {
    auto count = 0.0;
    for (auto const& placement : placements)
      count += static_cast<double>(traits.num_nonzeros(placement));
    return std::max(1.0, count);
  };
  auto const shares_transposes = facts.is_symmetric && facts.normalization != graph::Normalization::row &&
                                 (batches.renormalizes || !batches.has_strata);
  auto const sampled = sampled_blocks(step.shape(), step.coordinates(), facts, plan, shares_transposes);
  return static_cast<std::int64_t>(num_entries(sampled) / num_entries(listed.read()) *
                                   static_cast<double>(pmm::bytes_held(blocks)));
}

constexpr std::int64_t place_bytes = sizeof(runtime::Offset); // of an edge in the sampler's block

/// Lists the sampler's copy of A^ in host memory: one pattern per block, without its transpose, and space for the entries of the
/// sampled rows, at most a fraction `share` of the block.
void plan_sampled_blocks(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                         NetworkEpochTraits const& traits, double share, BatchSizes const& batches) {
  auto const has_relations =
      static_cast<bool>(plan.layers.front().relations); // 2 more bytes than a column's 4
  auto const block_bytes =
      bytes_of_blocks(step, facts, plan, traits, batches) / (has_relations ? 4 : 2) * (has_relations ? 3 : 1);
  step.add_array("blocks of the sampler", block_bytes);
  step.add_array("entries of sampled rows",
                 static_cast<std::int64_t>(share * static_cast<double>(block_bytes)));
  auto const& first = plan.layers.front();
  auto const num_features = first.num_edge_features();
  if (num_features == 0) return;
  auto const num_edges = traits.num_nonzeros(first.adjacency);
  step.add_array("features of edges of the sampler", step.scalar_bytes(num_edges * num_features));
  step.add_array("places of sampled entries",
                 static_cast<std::int64_t>(share * static_cast<double>(num_edges * place_bytes)));
}

/// Lists the batches in host memory (gnn/batches/network_batches.hpp), except arrays that the network borrows, which are listed with
/// its operands: the blocks from which lists of edges are made, and the batch that is prefetched.
void plan_host_batches(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                       NetworkSettings const& settings, NetworkEpochTraits const& traits,
                       BatchSizes const& batches) {
  auto const& first = plan.layers.front();
  auto const reads_edges = first.owners && first.reads_edges();
  auto const block_bytes = bytes_of_blocks(step, facts, plan, traits, batches);
  auto other = list_beside(step);
  if (reads_edges) {
    auto const num_edges = traits.num_nonzeros(first.adjacency);
    plan_edges(other, edge_counts_of(first, cells_of(step, first), num_edges), needs_edge_ids(settings),
               false);
    if (first.num_edge_features() > 0) // of the sampled block and of the list of edges
      step.add_array("entries of the batch", (batches.prefetches ? 4 : 2) * num_edges * place_bytes);
  }
  plan_input_features(other, facts, plan, settings.feature_norm, traits.num_feature_nonzeros(plan),
                      pmm::Lifetime::training);
  if (first.relations && !first.relations->attention) plan_adjacency(other, facts, plan, traits);
  if (reads_edges || first.relations) step.add_array("blocks of the batch", block_bytes);
  if (batches.prefetches) step.add_array("the other batch", block_bytes + pmm::bytes_held(other));
}

/// Lists what a sampler of kernels has beside the batch that is used: blocks of A^ with transposes, keys and marks of vertices, marks of the
/// entries of sampled rows, and another batch (gnn/batches/device_sampler.hpp).
void plan_device_sampler(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                         NetworkEpochTraits const& traits, double share, BatchSizes const& batches) {
  auto const block_bytes = bytes_of_blocks(step, with_transposes(facts, plan), plan, traits, batches);
  constexpr std::int64_t key_and_mark_bytes = 5; // a key, a bit, and its share of a number per word
  std::int64_t num_positions = 0;
  for (auto const& layer : plan.layers)
    if (layer.aggregates() && num_positions == 0)
      num_positions =
          2 * (step.block(layer.adjacency).rows.size() + step.block(layer.adjacency).columns.size());
  step.add_array("blocks of the device's sampler", block_bytes);
  step.add_array("vertices of the device's sampler",
                 key_and_mark_bytes * num_positions + facts.num_vertices / 8);
  step.add_array("entries of sampled rows",
                 static_cast<std::int64_t>(share * static_cast<double>(block_bytes)) / 8);
}

/// Lists the sampler's data for degrees within a batch: the neighbors of all rows and columns of its blocks, and one bit per vertex
/// (sampling/batch_builder.hpp).
void plan_neighbour_lists(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan) {
  auto const n = facts.num_vertices;
  using Ranges = std::vector<runtime::Range>;
  std::vector<std::pair<pmm::IndexOrder, Ranges>> known;
  auto num_rows = 0.0;
  auto const has_relations = static_cast<bool>(plan.layers.front().relations); // then only of rows
  auto const add = [&](pmm::IndexOrder order, Ranges const& ranges, bool are_rows) {
    if (has_relations && !are_rows) return;
    std::pair const range(facts.has_two_orders() ? order : pmm::IndexOrder(), ranges);
    if (std::ranges::find(known, range) != known.end()) return;
    known.push_back(range);
    for (auto const& part : ranges)
      num_rows += static_cast<double>(part.size());
  };
  for (auto const& layer : plan.layers) {
    if (layer.owners) {
      auto const& roles = layer.owners->roles;
      add({}, pmm::block_rows(step.shape(), step.coordinates(), roles, n), true);
      add({}, pmm::block_columns(step.shape(), step.coordinates(), roles, n), false);
      continue;
    }
    if (!layer.aggregates()) continue;
    auto const block = step.block(layer.adjacency);
    add(layer.adjacency.layout.row_order, {block.rows}, true);
    add(layer.adjacency.layout.column_order, {block.columns}, false);
  }
  auto const entry_bytes = (n > std::int64_t{1} << 32 ? 8 : 4) + (has_relations       ? 2
                                                                  : facts.is_weighted ? 4
                                                                                      : 0);
  auto const num_listed = facts.num_entries - (has_relations ? 0 : facts.num_self_loops);
  auto const row_bytes = 8 + static_cast<double>(entry_bytes * num_listed) / static_cast<double>(n);
  step.add_array("neighbors of the sampler", static_cast<std::int64_t>(num_rows * row_bytes) + n / 8);
}

} // namespace

bool fits_kernels(graph::StoreFacts const& facts, NetworkPlan const& plan, pmm::Gather gather,
                  int num_ranks) {
  auto const& first = plan.layers.front();
  auto const may_move_all = !first.owners || gather != pmm::Gather::needed || num_ranks == 1;
  return may_move_all && !first.relations && !first.reads_edges() && facts.num_edge_features == 0 &&
         facts.feature_kind != graph::FeatureKind::sparse && facts.num_vertices <= std::int64_t{1} << 32;
}

SummedElements summed_elements_of(pmm::StepPlan const& step, std::vector<PlannedParameter> const& parameters,
                                  runtime::Wire wire) {
  auto const lengths = lengths_of(step, parameters);
  SummedElements elements{wire};
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    auto const& [role, placement, place] = parameters[p];
    elements.add(role, false, lengths[p],
                 place ? runtime::encoding_of(wire).in_whole_blocks(lengths[p])
                       : reserved_length(step, role, placement, wire));
  }
  return elements;
}

void plan_mini_batch_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                            NetworkSettings const& settings, OptimizerSettings const& optimizer,
                            BatchSizes const& batches) {
  auto const& shape = step.shape();
  auto const& coordinates = step.coordinates();
  auto const of_batch = facts_of_batch(facts, batches.num_vertices);
  auto const batch_plan = plan_of_batch(plan, of_batch.num_vertices);
  auto const traits = traits_of(facts, shape, coordinates, plan, settings);
  auto const batch_traits = traits_of(of_batch, shape, coordinates, batch_plan, settings);
  auto const parameters = parameters_of(plan, settings);
  // Features of the graph and of a batch are kept even if a rounded copy exists.
  constexpr auto stays = pmm::Lifetime::training;
  plan_targets_and_parameters(step, facts, plan, settings, traits.links);
  plan_gradient_sum_array(step, summed_elements_of(step, parameters, optimizer.gradient_wire),
                          batches.num_accumulated);
  plan_update_arrays(step, optimizer, updated_lengths_of(step, parameters).trained);
  if (batches.has_full_graph) {
    auto whole = plan;
    whole.drops_edges = plan.drops_edges && batches.trains_full_graph;
    auto const of_whole = batches.trains_full_graph ? settings : settings.without_dropout();
    plan_operands(step, facts, whole, of_whole, traits, stays);
    plan_network_arrays(step, whole, of_whole, traits.num_feature_nonzeros(plan),
                        traits.num_nonzeros(plan.layers.front().adjacency),
                        traits.num_relation_edges(plan.layers.front().adjacency));
    plan_relation_arrays(step, whole, traits, settings.wire);
  } else {
    plan_input_features(step, facts, plan, settings.feature_norm, traits.num_feature_nonzeros(plan), stays);
  }
  auto const are_made_by_kernels =
      batches.are_made_by_kernels && fits_kernels(facts, plan, settings.gather, shape.size(pmm::group_axes));
  auto const share = static_cast<double>(of_batch.num_vertices) / static_cast<double>(facts.num_vertices);
  if constexpr (pmm::runs_on_host) {
    auto of_host = batches;
    of_host.prefetches = batches.prefetches && !are_made_by_kernels;
    plan_sampled_blocks(step, facts, plan, traits, share, of_host);
    plan_host_batches(step, of_batch, batch_plan, settings, batch_traits, of_host);
  }
  if (are_made_by_kernels) {
    plan_device_sampler(step, facts, plan, traits, share, batches);
    auto other = list_beside(step);
    plan_operands(other, with_transposes(of_batch, batch_plan), batch_plan, settings, batch_traits, stays);
    step.add_array("the other batch of the device", pmm::bytes_held(other));
  }
  if (batches.renormalizes || plan.layers.front().relations) {
    plan_neighbour_lists(step, facts, plan);
    if (are_made_by_kernels && pmm::runs_on_host) plan_neighbour_lists(step, facts, plan); // a copy
  }
  // The operands of a batch have equally many elements.
  plan_operands(step, with_transposes(of_batch, batch_plan), batch_plan, settings, batch_traits, stays);
  plan_network_arrays(step, batch_plan, settings, batch_traits.num_feature_nonzeros(batch_plan),
                      batch_traits.num_nonzeros(batch_plan.layers.front().adjacency),
                      batch_traits.num_relation_edges(batch_plan.layers.front().adjacency));
  plan_relation_arrays(step, batch_plan, batch_traits, settings.wire);
}

} // namespace orthant::models
