// SPDX-License-Identifier: Apache-2.0
#include "models/memory_estimate.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace orthant::models {
namespace {

constexpr std::int64_t offset_bytes = sizeof(runtime::Offset);
constexpr std::int64_t column_bytes = sizeof(runtime::LocalColumn);

// Measured on a job of one small graph: buffers of OpenBLAS, HDF5's caches and MPI's first messages.
constexpr std::int64_t library_bytes = std::int64_t{12} << 20;

std::int64_t even_share(std::int64_t count, pmm::ProcessGrid const& grid, pmm::Layout const& layout) {
  auto const blocks = static_cast<std::int64_t>(grid.size(layout.rows)) * grid.size(layout.columns);
  return (count + blocks - 1) / blocks;
}

/// A CSR block and its transpose.
std::int64_t both_ways(std::int64_t nnz, pmm::Block const& block, std::int64_t value_bytes) {
  return 2 * nnz * (column_bytes + value_bytes) +
         offset_bytes * (block.rows.size() + block.columns.size() + 2);
}

} // namespace

std::int64_t MemoryEstimate::peak() const {
  auto const read = adjacency + features + targets;
  return libraries + std::max(read + activations + parameters, read + loading);
}

template<class T>
MemoryEstimate estimate_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                               std::vector<GcnLayerPlan> const& plan, GcnSettings const& settings,
                               OptimizerSettings const& optimizer) {
  constexpr auto scalar = static_cast<std::int64_t>(sizeof(T));
  MemoryEstimate estimate;
  estimate.libraries = library_bytes;
  auto const is_dropped = settings.dropout > 0;

  std::set<std::tuple<pmm::Axis, pmm::Axis, bool>> read;
  auto const num_entries = facts.num_entries + (facts.adds_self_loops() ? facts.num_vertices : 0);
  for (auto const& layer : plan) {
    auto const [rows, columns] = std::pair(layer.adjacency.layout.rows, layer.adjacency.layout.columns);
    auto const parity = layer.is_even || !facts.has_two_orders();
    auto const swapped_parity = !layer.is_even || !facts.has_two_orders();
    auto const block = pmm::block_of(grid, layer.adjacency);
    auto const is_known = read.contains({rows, columns, parity});
    auto const is_shared = facts.is_symmetric && read.contains({columns, rows, swapped_parity});
    if (!is_known) estimate.adjacency += scalar * (block.rows.size() + block.columns.size()); // scales
    read.insert({rows, columns, parity});
    if (is_known || is_shared) continue;
    auto const nnz = even_share(num_entries, grid, layer.adjacency.layout);
    estimate.adjacency += both_ways(nnz, block, facts.is_weighted ? scalar : 0);
    // The store's block beside its copy and the copy's transpose.
    estimate.loading = std::max(
        estimate.loading, nnz * column_bytes + offset_bytes * (block.rows.size() + block.columns.size()));
  }

  auto const& input = plan.front().input;
  auto const input_block = pmm::block_of(grid, input);
  if (facts.feature_kind == graph::FeatureKind::sparse) {
    auto const nnz = even_share(facts.num_feature_entries, grid, input.layout);
    estimate.features = both_ways(nnz, input_block, facts.features_have_values ? scalar : 0);
    if (is_dropped) estimate.features += 2 * nnz * scalar;
    if (settings.feature_norm == FeatureNorm::row) estimate.features += scalar * input_block.rows.size();
    estimate.loading =
        std::max(estimate.loading, nnz * (column_bytes + 4) + offset_bytes * input_block.rows.size());
  } else {
    auto const keeps_aggregate_alone =
        plan.front().aggregates_first && !is_dropped && !settings.trains_features;
    if (!keeps_aggregate_alone) estimate.features = scalar * input_block.num_padded * (is_dropped ? 2 : 1);
    estimate.loading =
        std::max(estimate.loading, input_block.size() * (4 + (keeps_aggregate_alone ? scalar : 0)));
  }
  estimate.targets += 8 * input_block.rows.size(); // ids

  auto gradient = std::int64_t{0};
  auto middle = std::int64_t{0};
  auto gathered = std::int64_t{0};
  auto const moments = Optimizer<T>::moment_bytes(optimizer);
  for (auto const& layer : plan) {
    auto const output = pmm::block_of(grid, layer.output);
    auto const middle_block = pmm::block_of(grid, layer.middle);
    auto const weight = pmm::block_of(grid, layer.weight);
    estimate.activations +=
        scalar * output.size() + (layer.aggregates_first ? scalar * middle_block.size() : 0);
    estimate.parameters += weight.num_padded * (2 * scalar + moments);
    if (settings.has_bias) estimate.parameters += output.columns.size() * (2 * scalar + moments);
    if (weight.num_padded != weight.size()) gathered = std::max(gathered, scalar * weight.size());
    gradient = std::max(gradient, output.size());
    if (layer.index > 0) gradient = std::max(gradient, pmm::block_of(grid, layer.input).size());
    middle = std::max(middle, middle_block.size());
    if (is_dropped && layer.index + 1 < settings.num_layers()) estimate.targets += 8 * output.rows.size();
  }
  estimate.activations += scalar * (gradient + middle);
  estimate.parameters += 3 * gathered; // read for a product, for one under way, and a partial gradient
  if (settings.trains_features)
    estimate.parameters += input_block.num_padded * (scalar + moments) + scalar * input_block.size();

  auto const logits = pmm::block_of(grid, plan.back().output);
  constexpr auto pair = static_cast<std::int64_t>(sizeof(runtime::ValueIndex<T>));
  estimate.targets += logits.rows.size() * (1 + 4 + 3 * scalar + pair);
  return estimate;
}

template MemoryEstimate estimate_memory<float>(pmm::ProcessGrid const&, graph::StoreFacts const&,
                                               std::vector<GcnLayerPlan> const&, GcnSettings const&,
                                               OptimizerSettings const&);
template MemoryEstimate estimate_memory<double>(pmm::ProcessGrid const&, graph::StoreFacts const&,
                                                std::vector<GcnLayerPlan> const&, GcnSettings const&,
                                                OptimizerSettings const&);

} // namespace orthant::models
