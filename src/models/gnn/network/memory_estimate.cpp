// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/network/memory_estimate.hpp"

#include "models/gnn/operands/owned_adjacency.hpp"
#include "models/gnn/plan/epoch_traits.hpp"
#include "models/gnn/plan/network_products.hpp"
#include "models/training/parameter_update.hpp"
#include "pmm/gemm/dense_library.hpp"
#include "pmm/gemm/gemm_choice.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

// MPI's shared-memory fragments for large messages, per neighbor. Measured with Open MPI 4.1 on one node, graphs of 3 thousand to
// 200 thousand vertices, 1 to 4 ranks.
constexpr std::int64_t fragment_bytes = std::int64_t{8} << 20;

/// Memory of oneDNN's code, loaded and compiled, for sums (A^T B) and for other products. Measured: 8 MiB with transformers of
/// width 64 to 256 on 1 to 4 ranks, 2 MiB without sums; 5 to 8 MiB with graphs of 34 to 48,980 vertices. Our kernels
/// take less than 1 MiB.
constexpr std::int64_t onednn_sums_bytes = std::int64_t{6} << 20;
constexpr std::int64_t onednn_products_bytes = std::int64_t{2} << 20;

/// Shared slots of an axis within a node for each of its ranks, and the pieces that a rank adds (runtime/backends/shared_slots.hpp).
constexpr std::int64_t slots_bytes_of_rank = std::int64_t{128} << 10;
constexpr std::int64_t pieces_bytes = std::int64_t{384} << 10;

/// MPI's memory for the blocking reductions of an epoch, on P ranks of an axis that leaves its node (measured along x, y and z):
///
///   all_reduce        1/P of the message (a ring)
///   reduce_scatter    (1 + 2/P) of the message
///
/// Only one of them exists at a time. Large messages also pass through fragments, shared with at most two neighbors per axis. An all_reduce
/// over data, experts or several axes copies its message (Rabenseifner's algorithm in Open MPI 4.1). Axes `within_node` have slots instead.
struct Messages {
  std::int64_t copied = 0;
  std::int64_t fragments = 0;
};
Messages messages_of(pmm::StepPlan const& step, pmm::AxisSet within_node, bool is_job_on_node) {
  auto const& shape = step.shape();
  auto largest = std::int64_t{0};
  auto copied = std::int64_t{0};
  auto num_neighbours = 1;
  auto const calls = calls_of(step);
  for (auto const& call : calls) {
    auto const goes_along = [&](pmm::Axis axis) { return call.axis == name_of(axis); };
    if (call.operation == runtime::Operation::all_reduce && !is_job_on_node &&
        std::ranges::none_of(pmm::spatial_axes, goes_along))
      copied = std::max(copied, call.bytes);
  }
  auto slots = std::int64_t{0};
  for (auto const axis : pmm::spatial_axes) {
    auto const size = std::int64_t{shape.size(axis)};
    if (size == 1) continue;
    if (within_node.contains(axis)) {
      slots += size * slots_bytes_of_rank + pieces_bytes;
      continue;
    }
    num_neighbours += std::min(shape.size(axis) - 1, 2);
    for (auto const& call : calls) {
      if (call.axis != name_of(axis)) continue;
      if (call.operation == runtime::Operation::reduce_scatter)
        copied = std::max(copied, call.bytes + 2 * call.bytes / size);
      if (call.operation != runtime::Operation::all_reduce) continue;
      largest = std::max(largest, call.bytes);
      copied = std::max(copied, call.bytes / size);
    }
  }
  return {copied, slots + num_neighbours * std::min(fragment_bytes, largest / 8)};
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
  auto [copied, fragments] = messages_of(step, within_node, grid.world().shares_memory());
  for (std::size_t l = 0; trains && settings.overlaps && l < plan.layers.size(); ++l) {
    if (!plan.layers[l].transforms()) continue;
    auto const hidden = products_of(plan.layers[l], {}).transform_back.result;
    auto const third = hidden.layout.third();
    if (needs_input_gradient(plan, l) && shape.size(third) > 1 && pmm::can_hide_messages(grid.over(third)))
      copied = std::max(copied, step.scalar_bytes(step.block(hidden).size()));
  }
  return {copied + fragments, product_library_bytes<T>(step) +
                                  rounded_operand_bytes(step, pmm::chosen_gemm_math()) +
                                  operand_copy_bytes(step, plan, settings, traits)};
}

} // namespace

std::int64_t message_bytes(pmm::StepPlan const& step) {
  auto const [copied, fragments] = messages_of(step, {}, {});
  return copied + fragments;
}

std::int64_t rounded_operand_bytes(pmm::StepPlan const& step, pmm::GemmMath math) {
  if (math != pmm::GemmMath::bf16) return 0;
  std::int64_t left = 0, right = 0; // numbers of the largest copies
  std::int64_t outgrown = 0; // of smaller ones before them, which a device keeps for its recorded graphs
  auto const grow = [&](std::int64_t& largest, std::int64_t size) {
    if (size <= largest) return;
    if (!pmm::runs_on_host) outgrown += largest;
    largest = size;
  };
  for (auto const& product : products_of(step)) {
    if (product.is_sparse || product.operand_format != runtime::Wire::native) continue;
    pmm::GemmExtents const extents{product.m, product.n, product.k};
    pmm::detail::RoundedPiece const piece(
        extents, product.form == pmm::Form::right_grad ? pmm::Transpose::yes : pmm::Transpose::no);
    grow(left, pmm::runs_on_host ? piece.left_size() : extents.m * extents.k);
    grow(right, pmm::runs_on_host ? piece.right_size() : extents.k * extents.n);
  }
  return (left + right + outgrown) * static_cast<std::int64_t>(sizeof(runtime::Bf16Number));
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
    auto const is_bf16 =
        product.operand_format == runtime::Wire::bf16 ||
        (product.operand_format == runtime::Wire::native && pmm::chosen_gemm_math() == pmm::GemmMath::bf16);
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

void plan_targets_and_parameters(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                                 NetworkSettings const& settings, LinkCounts const& links) {
  if (predicts_links(settings))
    plan_link_arrays(step, facts, link_plan_of(step.shape(), step.coordinates(), plan, settings), links);
  else
    plan_vertex_loss_arrays(step, facts, plan.logits());
  plan_parameter_arrays(step, parameters_of(plan, settings));
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
  pass.messages += bytes_of_sums(
      grid, step, summed_elements_of(step, parameters_of(plan, settings), optimizer.gradient_wire));
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
