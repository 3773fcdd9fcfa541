// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/memory_estimate.hpp"

#include "models/plan/gcn_step.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace orthant::models {
namespace {

constexpr std::int64_t offset_bytes = sizeof(runtime::Offset);
constexpr std::int64_t column_bytes = sizeof(runtime::LocalColumn);

// Measured with Open MPI 4.1 on one node, graphs of 3 thousand to 200 thousand vertices, 1 to 4 ranks:
// buffers of BLAS, HDF5 and MPI that any job takes; and what shared-memory fragments of large messages take,
// a neighbour.
constexpr std::int64_t library_bytes = std::int64_t{7} << 20;
constexpr std::int64_t fragment_bytes = std::int64_t{8} << 20;

/// A CSR block and its transpose.
std::int64_t both_ways(std::int64_t nnz, pmm::Block const& block, std::int64_t value_bytes) {
  return 2 * nnz * (column_bytes + value_bytes) +
         offset_bytes * (block.rows.size() + block.columns.size() + 2);
}

} // namespace

std::int64_t MemoryEstimate::arrays() const {
  return adjacency + features + activations + parameters + targets;
}

std::int64_t MemoryEstimate::peak() const {
  return libraries + std::max(arrays() + messages, loading);
}

namespace {

/// An asynchronous reduction keeps a copy of its message, a blocking one (a ring over P ranks) a P-th of it,
/// never both at once; every large one passes through fragments shared with at most two neighbours an axis.
std::int64_t message_bytes(pmm::ProcessGrid const& grid, GcnPlan const& plan, bool overlaps,
                           std::int64_t scalar) {
  auto largest = std::int64_t{0};
  auto copied = std::int64_t{0};
  auto const reduced = [&](pmm::Placement const& placement) {
    return grid.size(placement.layout.third()) == 1 ? 0 : scalar * pmm::block_of(grid, placement).size();
  };
  auto const add = [&](pmm::Placement const& placement) {
    largest = std::max(largest, reduced(placement));
    copied = std::max(copied, reduced(placement) / grid.size(placement.layout.third()));
  };
  for (auto const& layer : plan.layers) {
    add(layer.middle);
    add(layer.output);
    if (layer.index > 0 || plan.projection) add(layer.input);
    if (overlaps && (layer.index > 0 || plan.projection))
      copied = std::max(copied, reduced(layer.aggregates_first ? layer.middle : layer.input));
  }
  for (auto const* const linear : {&plan.projection, &plan.head})
    if (*linear) add((*linear)->output);
  auto num_neighbours = 1;
  for (auto const axis : pmm::spatial_axes)
    num_neighbours += std::min(grid.size(axis) - 1, 2);
  return copied + num_neighbours * std::min(fragment_bytes, largest / 8);
}

template<class Work>
void for_each_weight(GcnPlan const& plan, Work const& work) {
  if (plan.projection) work(plan.projection->weight);
  for (auto const& layer : plan.layers)
    work(layer.weight);
  if (plan.head) work(plan.head->weight);
}

/// Elements of block `to` that a rank which has block `from` needs of others, if rows lie in both at random.
std::int64_t num_fetched(GcnLayerPlan const& layer, pmm::Block const& from, pmm::Block const& to) {
  auto const begin = std::max(from.columns.begin, to.columns.begin);
  auto const num_columns = std::max<std::int64_t>(0, std::min(from.columns.end, to.columns.end) - begin);
  auto const share =
      static_cast<double>(from.rows.size()) / static_cast<double>(layer.adjacency.extents.rows);
  auto const num_kept = share * static_cast<double>(to.rows.size() * num_columns);
  return to.size() - static_cast<std::int64_t>(num_kept);
}

/// What layer l has beside its products: scales and state of the norm, F', and the way of the residual.
template<class T>
void add_parts(MemoryEstimate& estimate, pmm::ProcessGrid const& grid, GcnPlan const& plan, std::size_t l,
               GcnSettings const& settings, std::int64_t moments) {
  constexpr auto scalar = static_cast<std::int64_t>(sizeof(T));
  if (!is_activated(plan, l)) return;
  auto const& layer = plan.layers[l];
  auto const input = pmm::block_of(grid, layer.input);
  auto const output = pmm::block_of(grid, layer.output);
  auto const has_norm = settings.norm == Norm::rms;
  if (has_norm || layer.is_residual) estimate.activations += scalar * output.size();
  if (has_norm) {
    estimate.activations +=
        output.rows.size() * (scalar + 4 * RmsNormState<T>::words_of(output.columns.size()));
    estimate.parameters += output.columns.size() * (2 * scalar + moments);
  }
  if (!layer.is_residual) return;
  // A run is at least a row: source, target and length of each. Rows that stay are copied at once, others are
  // packed and unpacked. What is sent one way is received the other.
  auto const is_alone = grid.shape().size(pmm::group_axes) == 1;
  estimate.activations += 2 * std::int64_t{3} * 8 * (input.rows.size() + (is_alone ? 0 : output.rows.size()));
  if (!is_alone)
    estimate.activations +=
        2 * scalar * (num_fetched(layer, input, output) + num_fetched(layer, output, input));
}

} // namespace

template<class T>
MemoryEstimate estimate_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                               GcnPlan const& plan, GcnSettings const& settings,
                               OptimizerSettings const& optimizer) {
  constexpr auto scalar = static_cast<std::int64_t>(sizeof(T));
  MemoryEstimate estimate;
  estimate.libraries = library_bytes;
  auto const is_dropped = settings.input_dropout() > 0;

  // In the order in which a model comes to be: targets, parameters, features, each layer's block of A^, then
  // buffers. Reading holds what the store hands out beside what is made of it.
  auto const held = [&] {
    return estimate.targets + estimate.features + estimate.activations + estimate.parameters +
           estimate.adjacency;
  };
  auto const read = [&](std::int64_t handed_out) {
    estimate.loading = std::max(estimate.loading, held() + handed_out);
  };

  auto const logits = pmm::block_of(grid, plan.logits());
  constexpr auto pair = static_cast<std::int64_t>(sizeof(runtime::ValueIndex<T>));
  estimate.targets = logits.rows.size() * (1 + 4 + 3 * scalar + pair);

  auto const moments = Optimizer<T>::moment_bytes(optimizer);
  for_each_weight(plan, [&](pmm::Placement const& weight) {
    auto const block = pmm::block_of(grid, weight);
    estimate.parameters += block.num_padded * (2 * scalar + moments);
    if (settings.has_bias) estimate.parameters += block.columns.size() * (2 * scalar + moments);
  });

  auto const& input = plan.features();
  auto const input_block = pmm::block_of(grid, input);
  estimate.targets += 8 * input_block.rows.size(); // ids
  if (facts.feature_kind == graph::FeatureKind::sparse) {
    auto const nnz = even_share(facts.num_feature_entries, grid.shape(), input.layout);
    auto const value = facts.features_have_values ? scalar : 0;
    estimate.features = both_ways(nnz, input_block, value);
    if (settings.feature_norm == FeatureNorm::row) estimate.features += scalar * input_block.rows.size();
    read(nnz * (column_bytes + (value > 0 ? 4 : 0)) + offset_bytes * input_block.rows.size());
    if (is_dropped) estimate.features += 2 * nnz * scalar;
  } else {
    estimate.features = scalar * input_block.size();
    read(4 * input_block.size());
    if (settings.trains_features) estimate.features = scalar * input_block.num_padded;
    if (is_dropped) estimate.features += scalar * input_block.num_padded;
  }

  std::set<std::tuple<pmm::AxisSet, pmm::AxisSet, bool>> known;
  auto const num_entries = num_adjacency_entries(facts);
  for (auto const& layer : plan.layers) {
    auto const rows = layer.adjacency.layout.rows;
    auto const columns = layer.adjacency.layout.columns;
    auto const block = pmm::block_of(grid, layer.adjacency);
    auto const key = std::tuple(rows, columns, layer.is_even || !facts.has_two_orders());
    auto const transposed_key = std::tuple(columns, rows, !layer.is_even || !facts.has_two_orders());
    if (!known.contains(key)) {
      estimate.adjacency += scalar * (block.rows.size() + block.columns.size()); // scales
      if (!facts.is_symmetric || !known.contains(transposed_key)) {
        auto const nnz = even_share(num_entries, grid.shape(), layer.adjacency.layout);
        auto const value = facts.is_weighted ? scalar : 0;
        // The transpose is made once the store's copy is gone.
        read(nnz * (2 * column_bytes + value + (value > 0 ? 4 : 0)) + 2 * offset_bytes * block.rows.size());
        estimate.adjacency += both_ways(nnz, block, value);
      }
      known.insert(key);
    }
    if (settings.dropout > 0 && is_activated(plan, static_cast<std::size_t>(layer.index)))
      estimate.targets += 8 * pmm::block_of(grid, layer.output).rows.size(); // ids
  }

  auto gradient = std::int64_t{0};
  auto middle = std::int64_t{0};
  auto gathered = std::int64_t{0};
  for_each_weight(plan, [&](pmm::Placement const& placement) {
    auto const weight = pmm::block_of(grid, placement);
    if (weight.num_padded != weight.size()) gathered = std::max(gathered, scalar * weight.size());
  });
  for (auto const& layer : plan.layers) {
    gradient = std::max(gradient, pmm::block_of(grid, layer.output).size());
    if (layer.index > 0 || plan.projection)
      gradient = std::max(gradient, pmm::block_of(grid, layer.input).size());
    middle = std::max(middle, pmm::block_of(grid, layer.middle).size());
    estimate.activations += scalar * pmm::block_of(grid, layer.output).size();
    if (layer.aggregates_first) estimate.activations += scalar * pmm::block_of(grid, layer.middle).size();
  }
  auto residual_gradient = std::int64_t{0};
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    add_parts<T>(estimate, grid, plan, l, settings, moments);
    if (plan.layers[l].is_residual)
      residual_gradient = std::max(residual_gradient, pmm::block_of(grid, plan.layers[l].input).size());
  }
  if (plan.projection) estimate.activations += scalar * pmm::block_of(grid, plan.projection->output).size();
  if (plan.head) {
    auto const logits_size = pmm::block_of(grid, plan.head->output).size();
    estimate.activations += scalar * logits_size;
    middle = std::max(middle, logits_size);
  }
  auto gathered_features = std::int64_t{0};
  if (settings.trains_features) {
    estimate.parameters += input_block.num_padded * (scalar + moments);
    if (!plan.projection) gradient = std::max(gradient, input_block.num_padded);
    if (grid.size(input.layout.third()) > 1) gathered_features = scalar * input_block.size();
  }
  estimate.activations += scalar * (gradient + middle + residual_gradient);
  // Read for a product, for one under way (weights alone), and a partial gradient.
  estimate.parameters += gathered + 2 * std::max(gathered, gathered_features);
  estimate.messages = message_bytes(grid, plan, settings.overlaps, scalar);
  return estimate;
}

template<class T>
MemoryEstimate estimate_mini_batch_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                                          GcnPlan const& plan, GcnSettings const& settings,
                                          OptimizerSettings const& optimizer, std::int64_t batch_size,
                                          bool has_full_graph) {
  auto estimate = estimate_memory<T>(grid, facts, plan, settings, optimizer);
  if (!has_full_graph) {
    // The sampler has A^ one way, in the host's memory.
    estimate.adjacency = pmm::runs_on_host ? estimate.adjacency / 2 : 0;
    estimate.activations = 0;
    estimate.loading = 0;
  }
  auto of_batch = facts;
  of_batch.num_vertices = std::min(batch_size, facts.num_vertices);
  auto const share = static_cast<double>(of_batch.num_vertices) / static_cast<double>(facts.num_vertices);
  auto const part = [](std::int64_t count, double of_it) {
    return static_cast<std::int64_t>(static_cast<double>(count) * of_it);
  };
  of_batch.num_entries = part(facts.num_entries, share * share);
  of_batch.num_feature_entries = part(facts.num_feature_entries, share);
  estimate.activations +=
      estimate_memory<T>(grid, of_batch, with_num_vertices(plan, of_batch.num_vertices), settings, optimizer)
          .activations;
  return estimate;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template MemoryEstimate estimate_memory<T>(pmm::ProcessGrid const&, graph::StoreFacts const&,              \
                                             GcnPlan const&, GcnSettings const&, OptimizerSettings const&);  \
  template MemoryEstimate estimate_mini_batch_memory<T>(pmm::ProcessGrid const&, graph::StoreFacts const&,   \
                                                        GcnPlan const&, GcnSettings const&,                  \
                                                        OptimizerSettings const&, std::int64_t, bool);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
