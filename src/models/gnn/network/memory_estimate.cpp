// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/network/memory_estimate.hpp"

#include "models/gnn/operands/owned_adjacency.hpp"
#include "models/gnn/plan/epoch_traits.hpp"
#include "models/gnn/plan/network_products.hpp"
#include "models/training/gradient_sum.hpp"
#include "models/training/parameter_update.hpp"
#include "pmm/gemm/gemm_choice.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

// MPI's shared-memory fragments for large messages, per neighbor. Measured with Open MPI 4.1 on one node, graphs of 3 thousand to
// 200 thousand vertices, 1 to 4 ranks.
constexpr std::int64_t fragment_bytes = std::int64_t{8} << 20;

/// Memory of oneDNN's code, loaded and compiled, for sums (A^T B) and for other products. Measured: 8 MiB with transformers of
/// width 64 to 256 on 1 to 4 ranks, 2 MiB without sums; 5 to 8 MiB with graphs of 34 to 48,980 vertices. Code compiled by LIBXSMM
/// and our kernels take less than 1 MiB.
constexpr std::int64_t onednn_sums_bytes = std::int64_t{6} << 20;
constexpr std::int64_t onednn_products_bytes = std::int64_t{2} << 20;

/// A blocking all_reduce within a node is split into pieces of this many bytes per rank (runtime/backends/mpi_exchange.hpp).
constexpr std::int64_t piece_bytes_of_rank = std::int64_t{2} << 20;

/// MPI's memory for the blocking reductions of an epoch, on P ranks of an axis (measured along x, y and z):
///
///   all_reduce        1/P of the message (a ring); within a node one piece (measured on 2 ranks)
///   reduce_scatter    (1 + 2/P) of the message
///
/// Only one of them exists at a time. Large messages also pass through fragments, shared with at most two neighbors per axis. An all_reduce
/// over data, experts or several axes copies its message (Rabenseifner's algorithm in Open MPI 4.1); this is an upper bound, because within
/// a node it is also split. `adds_by_pairs`: axes whose blocking reduce_scatters, of aggregations, do not use MPI's
/// (runtime/backends/mpi_backend.cpp).
struct Messages {
  std::int64_t copied = 0;
  std::int64_t fragments = 0;
};
Messages messages_of(pmm::StepPlan const& step, pmm::AxisSet within_node, pmm::AxisSet adds_by_pairs) {
  auto const& shape = step.shape();
  auto largest = std::int64_t{0};
  auto copied = std::int64_t{0};
  auto num_neighbours = 1;
  auto const calls = calls_of(step);
  for (auto const& call : calls) {
    auto const goes_along = [&](pmm::Axis axis) { return call.axis == name_of(axis); };
    if (call.operation == runtime::Operation::all_reduce &&
        std::ranges::none_of(pmm::spatial_axes, goes_along))
      copied = std::max(copied, call.bytes);
  }
  for (auto const axis : pmm::spatial_axes) {
    num_neighbours += std::min(shape.size(axis) - 1, 2);
    for (auto const& call : calls) {
      if (call.axis != name_of(axis)) continue;
      if (call.operation == runtime::Operation::reduce_scatter && !adds_by_pairs.contains(axis))
        copied = std::max(copied, call.bytes + 2 * call.bytes / shape.size(axis));
      if (call.operation != runtime::Operation::all_reduce) continue;
      largest = std::max(largest, call.bytes);
      auto const size = std::int64_t{shape.size(axis)};
      copied = std::max(copied, within_node.contains(axis) ? std::min(call.bytes, piece_bytes_of_rank * size)
                                                           : call.bytes / size);
    }
  }
  return {copied, num_neighbours * std::min(fragment_bytes, largest / 8)};
}

template<class T>
bool multiplies_with_onednn([[maybe_unused]] pmm::GemmCase const& kind) {
  if constexpr (pmm::runs_on_host && sizeof(T) == sizeof(float))
    return pmm::chosen_gemm_library(kind) == pmm::onednn_name;
  return false;
}

template<class T>
std::int64_t library_bytes_of(pmm::GemmShape shape) {
  auto const onednn_bytes =
      multiplies_with_onednn<T>({.shape = shape}) ? onednn_sums_bytes + onednn_products_bytes : 0;
  return common_library_bytes + onednn_bytes;
}

/// Axes whose groups share memory.
pmm::AxisSet axes_within_node(pmm::ProcessGrid const& grid) {
  pmm::AxisSet axes;
  for (auto const axis : pmm::spatial_axes)
    if (grid.over(axis).shares_memory()) axes = axes.with(axis);
  return axes;
}

/// Memory besides the arrays during an epoch or an evaluation.
struct Pass {
  std::int64_t messages = 0;
  std::int64_t products = 0;
};
Pass larger_of(Pass const& a, Pass const& b) {
  return {std::max(a.messages, b.messages), std::max(a.products, b.products)};
}

MemoryEstimate estimate_of(pmm::StepPlan const& arrays, Pass const& pass) {
  return {.arrays = bytes_held(arrays),
          .loading = peak_bytes(arrays),
          .messages = pass.messages,
          .products = pass.products};
}

enum class PassKind : std::uint8_t { training, evaluation };

template<class T>
Pass pass_of(pmm::ProcessGrid const& grid, NetworkPlan const& plan, NetworkSettings settings,
             NetworkEpochTraits const& traits, PassKind kind) {
  auto const& shape = grid.shape();
  pmm::StepPlan step(shape, grid.coordinates(), sizeof(T));
  settings.wire = runtime::Wire::native; // rounded messages are shorter
  auto const trains = kind == PassKind::training;
  if (trains)
    plan_epoch(step, plan, settings, traits);
  else
    plan_evaluation(step, plan, settings, traits);
  auto const within_node = axes_within_node(grid);
  auto [copied, fragments] =
      messages_of(step, within_node, plan.layers.front().owners ? within_node : pmm::AxisSet());
  for (std::size_t l = 0; trains && settings.overlaps && l < plan.layers.size(); ++l) {
    if (!plan.layers[l].transforms()) continue;
    auto const hidden = products_of(plan.layers[l], {}).transform_back.result;
    auto const third = hidden.layout.third();
    if (needs_input_gradient(plan, l) && shape.size(third) > 1 && pmm::can_hide_messages(grid.over(third)))
      copied = std::max(copied, step.scalar_bytes(step.block(hidden).size()));
  }
  return {copied + fragments,
          product_library_bytes<T>(step) + operand_copy_bytes(step, plan, settings, traits)};
}

/// Lists what full-graph and mini-batch training hold besides networks and operands.
void plan_targets_and_parameters(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                                 NetworkSettings const& settings, LinkCounts const& links) {
  if (predicts_links(settings))
    plan_link_arrays(step, facts, link_plan_of(step.shape(), step.coordinates(), plan, settings), links);
  else
    plan_vertex_loss_arrays(step, facts, plan.logits());
  plan_parameter_arrays(step, parameters_of(plan, settings));
}

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
  if (reads_edges)
    plan_edges(other, cells_of(step, first), traits.num_nonzeros(first.adjacency), needs_edge_ids(settings),
               false);
  plan_input_features(other, facts, plan, settings.feature_norm, traits.num_feature_nonzeros(plan),
                      pmm::Lifetime::training);
  if (first.relations && !first.relations->attention) plan_adjacency(other, facts, plan, traits);
  if (reads_edges || first.relations) step.add_array("blocks of the batch", block_bytes);
  if (batches.prefetches) step.add_array("the other batch", block_bytes + pmm::bytes_held(other));
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

std::int64_t message_bytes(pmm::StepPlan const& step) {
  auto const [copied, fragments] = messages_of(step, {}, {});
  return copied + fragments;
}

template<class T>
std::int64_t library_bytes_of_transformers() {
  return std::max(library_bytes_of<T>(pmm::GemmShape::tall), library_bytes_of<T>(pmm::GemmShape::other));
}

template<class T>
std::int64_t product_library_bytes(pmm::StepPlan const& step) {
  auto has_sums = false, has_products = false;
  std::int64_t packed = 0; // elements
  for (auto const& product : products_of(step)) {
    auto const transposed_if = [&](pmm::Form form) {
      return product.form == form ? pmm::Transpose::yes : pmm::Transpose::no;
    };
    auto const is_bf16 = product.operand_format == runtime::Wire::bf16;
    pmm::GemmCase const kind{.numbers = is_bf16 ? pmm::GemmNumbers::bf16 : pmm::GemmNumbers::fp32,
                             .transpose_a = transposed_if(pmm::Form::right_grad),
                             .transpose_b = transposed_if(pmm::Form::left_grad),
                             .shape = pmm::gemm_shape({product.m, product.n, product.k})};
    if (product.is_sparse || !multiplies_with_onednn<T>(kind)) continue;
    auto const size = product.n * product.k;
    // dnnl_sgemm computes products of a large right operand or of few rows like sums.
    if (product.form == pmm::Form::right_grad || size > pmm::most_packed || product.is_per_expert)
      has_sums = true;
    if (product.form != pmm::Form::right_grad && size <= pmm::most_packed) {
      has_products = true;
      packed = std::max(packed, size);
    }
  }
  return (has_sums ? onednn_sums_bytes : 0) + (has_products ? onednn_products_bytes : 0) +
         step.scalar_bytes(packed);
}

std::int64_t MemoryEstimate::peak() const {
  return libraries + std::max(arrays + messages + checkpoints + judging + products, loading);
}

void plan_full_graph_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                            NetworkSettings const& settings, NetworkEpochTraits const& traits,
                            OptimizerSettings const& optimizer, bool features_may_move) {
  plan_targets_and_parameters(step, facts, plan, settings, traits.links);
  plan_operands(step, facts, plan, settings, traits,
                lifetime_of_features(step, plan, settings, traits, features_may_move));
  plan_network_arrays(step, plan, settings, traits.num_feature_nonzeros(plan),
                      traits.num_nonzeros(plan.layers.front().adjacency),
                      traits.num_relation_edges(plan.layers.front().adjacency));
  plan_relation_arrays(step, plan, traits, settings.wire);
  plan_update_arrays(step, optimizer, updated_lengths_of(step, parameters_of(plan, settings)).trained);
}

template<class T>
MemoryEstimate estimate_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                               NetworkPlan const& plan, NetworkSettings const& settings,
                               OptimizerSettings const& optimizer) {
  pmm::StepPlan step(grid.shape(), grid.coordinates(), sizeof(T));
  auto const traits = traits_of(facts, grid.shape(), grid.coordinates(), plan, settings);
  plan_full_graph_arrays(step, facts, plan, settings, traits, optimizer);
  auto const pass = pass_of<T>(grid, plan, settings, traits, PassKind::training);
  return estimate_of(step, pass);
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
  auto const lengths = lengths_of(step, parameters_of(plan, settings));
  // Features of the graph and of a batch are kept even if a rounded copy exists.
  constexpr auto stays = pmm::Lifetime::training;
  plan_targets_and_parameters(step, facts, plan, settings, traits.links);
  plan_gradient_sum_array(step, lengths, batches.num_accumulated);
  plan_update_arrays(step, optimizer, updated_lengths_of(step, parameters_of(plan, settings)).trained);
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
  if constexpr (pmm::runs_on_host) {
    auto const share = static_cast<double>(of_batch.num_vertices) / static_cast<double>(facts.num_vertices);
    plan_sampled_blocks(step, facts, plan, traits, share, batches);
    plan_host_batches(step, of_batch, batch_plan, settings, batch_traits, batches);
  }
  if (batches.renormalizes || plan.layers.front().relations) plan_neighbour_lists(step, facts, plan);
  // The operands of a batch have equally many elements.
  plan_operands(step, with_transposes(of_batch, batch_plan), batch_plan, settings, batch_traits, stays);
  plan_network_arrays(step, batch_plan, settings, batch_traits.num_feature_nonzeros(batch_plan),
                      batch_traits.num_nonzeros(batch_plan.layers.front().adjacency),
                      batch_traits.num_relation_edges(batch_plan.layers.front().adjacency));
  plan_relation_arrays(step, batch_plan, batch_traits, settings.wire);
}

template<class T>
MemoryEstimate estimate_mini_batch_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                                          NetworkPlan const& plan, NetworkSettings const& settings,
                                          OptimizerSettings const& optimizer, BatchSizes const& batches) {
  pmm::StepPlan step(grid.shape(), grid.coordinates(), sizeof(T));
  auto const traits_on = [&](graph::StoreFacts const& counts, NetworkPlan const& its_plan) {
    auto traits = traits_of(counts, grid.shape(), grid.coordinates(), its_plan, settings);
    traits.keeps_first_aggregate =
        false; // batches have no such aggregate, and the first pass on the full graph computes it
    return traits;
  };
  auto const of_batch = facts_of_batch(facts, batches.num_vertices);
  auto const batch_plan = plan_of_batch(plan, of_batch.num_vertices);
  plan_mini_batch_arrays(step, facts, plan, settings, optimizer, batches);
  auto pass = pass_of<T>(grid, batch_plan, settings, traits_on(of_batch, batch_plan), PassKind::training);
  // The full graph may have operands too large to be copied when those of a batch are copied.
  if (batches.has_full_graph)
    pass = larger_of(pass, pass_of<T>(grid, plan, settings, traits_on(facts, plan),
                                      batches.trains_full_graph ? PassKind::training : PassKind::evaluation));
  return estimate_of(step, pass);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::int64_t library_bytes_of_transformers<T>();                                                  \
  template std::int64_t product_library_bytes<T>(pmm::StepPlan const&);                                      \
  template MemoryEstimate estimate_memory<T>(pmm::ProcessGrid const&, graph::StoreFacts const&,              \
                                             NetworkPlan const&, NetworkSettings const&,                     \
                                             OptimizerSettings const&);                                      \
  template MemoryEstimate estimate_mini_batch_memory<T>(pmm::ProcessGrid const&, graph::StoreFacts const&,   \
                                                        NetworkPlan const&, NetworkSettings const&,          \
                                                        OptimizerSettings const&, BatchSizes const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
