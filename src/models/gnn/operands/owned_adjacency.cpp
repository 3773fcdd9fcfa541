// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/operands/owned_adjacency.hpp"

#include "graph/store/listed_block.hpp"
#include "models/parameters/device_copy.hpp"
#include "runtime/comm/together.hpp"

#include <utility>

namespace orthant::models {
namespace {

using graph::GraphStore;

template<class T>
pmm::SparseBlock<T> scaled(runtime::CsrMatrix<T> const& csr, graph::Scales const& scales) {
  return {csr, to_vector<T>("orthant::models::row_scale", scales.rows),
          to_vector<T>("orthant::models::column_scale", scales.columns)};
}

graph::Scales swapped(graph::Scales scales) {
  std::swap(scales.rows, scales.columns);
  return scales;
}

graph::Scales kept(std::optional<pmm::NeededSlabs> const& of_rows,
                   std::optional<pmm::NeededSlabs> const& of_columns, graph::Scales scales) {
  return {pmm::keep_needed(of_rows, std::move(scales.rows)),
          pmm::keep_needed(of_columns, std::move(scales.columns))};
}

} // namespace

void plan_made_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::CellSizes const& sizes,
                         std::int64_t num_nonzeros, pmm::Flow backward) {
  auto const num_rows = sizes.num_rows();
  auto const num_columns = sizes.num_columns();
  auto const plan_scales = [&](std::int64_t rows, std::int64_t columns) {
    step.add_array("orthant::models::row_scale", step.scalar_bytes(rows));
    step.add_array("orthant::models::column_scale", step.scalar_bytes(columns));
  };
  auto const by_rows = facts.normalization != graph::Normalization::none;
  auto const by_columns = facts.normalization == graph::Normalization::symmetric;
  plan_csr(step, num_rows, num_nonzeros, facts.is_weighted);
  plan_scales(by_rows ? num_rows : 0, by_columns ? num_columns : 0);
  if (backward == pmm::Flow::transpose)
    plan_transposed(step, num_columns, num_nonzeros, facts.is_weighted);
  else if (!is_operator_symmetric(facts))
    plan_scales(0, num_columns);
}

void plan_owned_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::CellSizes const& sizes,
                          std::int64_t num_nonzeros, bool drops_edges) {
  step.add_array("entries as they are read",
                 num_nonzeros *
                         (graph::listed_entry_bytes + facts.num_edge_features * graph::listed_feature_bytes) +
                     graph::slab_feature_bytes(facts, sizes.num_rows()),
                 pmm::Lifetime::operation);
  plan_made_adjacency(step, facts, sizes, num_nonzeros, backward_flow(facts));
  if (!drops_edges) return;
  plan_ids(step, sizes.num_rows(), sizes.num_columns());
  for (int way = 0; way < num_dropped_blocks(facts); ++way)
    pmm::plan_dropped_values(step, num_nonzeros);
}

std::vector<std::int64_t> read_owned_ids(GraphStore const& store, std::vector<runtime::Range> const& ranges) {
  std::vector<std::int64_t> all;
  for (auto const& range : ranges) {
    auto const ids = store.read_original_ids(graph::Order::p1, range);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

OwnedBlock read_owned_block(pmm::ProcessGrid const& grid, GraphStore const& store, pmm::Roles const& roles) {
  auto const& shape = grid.shape();
  auto const n = store.facts().num_vertices;
  auto const rows = pmm::block_rows(shape, grid.coordinates(), roles, n);
  auto const columns = pmm::block_columns(shape, grid.coordinates(), roles, n);
  auto const self_loops = store.facts().graph_operator().self_loops;
  OwnedBlock block;
  block.sizes = pmm::contiguous_cells(shape, grid.coordinates(), roles, n);
  runtime::together(grid.group(), [&] {
    block.csr = read_listed_block(store, rows, columns, self_loops);
    block.scales = read_listed_scales(store, rows, columns);
    if (store.facts().is_symmetric && !is_operator_symmetric(store.facts()))
      block.transposed_scales = read_listed_scales(store, columns, rows);
  });
  return block;
}

template<class T>
OwnedAdjacency<T> make_owned_adjacency(pmm::ProcessGrid const& grid, pmm::Roles const& roles,
                                       OwnedBlock block, pmm::Gather gather, pmm::Flow backward) {
  OwnedAdjacency<T> made;
  made.sizes = block.sizes;
  auto& csr = block.csr;
  pmm::HostPattern const pattern{csr.row_offsets, csr.columns};
  auto const needed = pmm::plan_needed_rows(grid, roles, made.sizes, pattern, gather);
  made.needed = std::make_shared<pmm::NeededRows const>(needed);
  runtime::together(grid.group(), [&] {
    keep_needed(needed, pattern);
    csr.rows = {0, std::ssize(csr.row_offsets) - 1};
    csr.columns_range = {0, needed.num_columns(made.sizes)};
    auto const kernels_block = to_csr<T>(std::exchange(csr, {}));
    auto const forward = scaled(kernels_block, kept(needed.over_a, needed.over_c, std::move(block.scales)));
    made.forward = pmm::LocalSpmm<T>(forward, pmm::Contents::fixed);
    // If A^ = diag(r) A diag(s), then A^^T = diag(s) A^T diag(r).
    if (backward == pmm::Flow::transpose)
      made.backward = pmm::LocalSpmm<T>(pmm::transposed(forward), pmm::Contents::fixed);
    else if (block.transposed_scales)
      made.backward = pmm::LocalSpmm<T>(
          scaled(kernels_block,
                 swapped(kept(needed.over_c, needed.over_a, std::move(*block.transposed_scales)))),
          pmm::Contents::fixed);
    else
      made.backward = made.forward;
  });
  return made;
}

template<class T>
OwnedAdjacency<T> read_owned_adjacency(pmm::ProcessGrid const& grid, GraphStore const& store,
                                       pmm::Roles const& roles, pmm::Gather gather,
                                       std::vector<pmm::DroppedBlock<T>>* dropped) {
  auto const flow = backward_flow(store.facts());
  auto made = make_owned_adjacency<T>(grid, roles, read_owned_block(grid, store, roles), gather, flow);
  if (dropped != nullptr)
    runtime::together(grid.group(),
                      [&] { drop_values(made, read_ids_of_block(grid, store, roles), flow, *dropped); });
  return made;
}

IdsOfBlock read_ids_of_block(pmm::ProcessGrid const& grid, GraphStore const& store, pmm::Roles const& roles) {
  auto const n = store.facts().num_vertices;
  auto const& shape = grid.shape();
  return {read_owned_ids(store, block_rows(shape, grid.coordinates(), roles, n)),
          read_owned_ids(store, block_columns(shape, grid.coordinates(), roles, n))};
}

template<class T>
void drop_values(OwnedAdjacency<T>& made, IdsOfBlock ids, pmm::Flow backward_flow,
                 std::vector<pmm::DroppedBlock<T>>& dropped) {
  auto const needed = [](std::optional<pmm::NeededSlabs> const& axis, std::vector<std::int64_t> all) {
    if (axis) all = pmm::at_places(std::move(all), axis->touched);
    return to_vector<std::int64_t>("orthant::models::original_ids", all);
  };
  auto const row_ids = needed(made.needed->over_a, std::move(ids.rows));
  auto const column_ids = needed(made.needed->over_c, std::move(ids.columns));
  auto const forward = with_dropped_values(made.forward.block(), row_ids, column_ids, dropped);
  auto backward = made.backward.block();
  if (backward_flow == pmm::Flow::forward)
    backward.csr.values = forward.csr.values; // pattern and draws are symmetric
  else
    backward = with_dropped_values(std::move(backward), column_ids, row_ids, dropped);
  made.forward = pmm::LocalSpmm<T>(forward);
  made.backward = pmm::LocalSpmm<T>(backward);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template OwnedAdjacency<T> make_owned_adjacency(pmm::ProcessGrid const&, pmm::Roles const&, OwnedBlock,    \
                                                  pmm::Gather, pmm::Flow);                                   \
  template OwnedAdjacency<T> read_owned_adjacency(pmm::ProcessGrid const&, GraphStore const&,                \
                                                  pmm::Roles const&, pmm::Gather,                            \
                                                  std::vector<pmm::DroppedBlock<T>>*);                       \
  template void drop_values(OwnedAdjacency<T>&, IdsOfBlock, pmm::Flow, std::vector<pmm::DroppedBlock<T>>&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

template<class T>
OwnedAdjacency<T> make_edges(pmm::ProcessGrid const& grid, pmm::Roles const& roles, OwnedBlock block,
                             IdsOfBlock const& ids, pmm::Gather gather,
                             std::vector<pmm::DroppedBlock<T>>* dropped) {
  auto const needed = std::make_shared<pmm::NeededRows const>(
      plan_needed_rows(grid, roles, block.sizes, {block.csr.row_offsets, block.csr.columns}, gather));
  auto const features = to_vector<T>("orthant::models::edge_features", block.csr.features);
  auto made = make_owned_adjacency<T>(grid, roles, std::move(block), pmm::Gather::all, pmm::Flow::forward);
  made.needed = needed;
  made.edge_features = features;
  runtime::together(grid.group(), [&] {
    EdgeOperands edges;
    edges.block = pmm::make_edge_block(made.forward.block().csr);
    edges.moved_columns = pmm::make_moved_rows(needed->over_c);
    edges.moved_rows = pmm::make_moved_rows(needed->over_a);
    if (!ids.rows.empty() || !ids.columns.empty()) {
      edges.row_ids = to_vector<std::int64_t>("orthant::models::edge_row_ids", ids.rows);
      edges.column_ids = to_vector<std::int64_t>("orthant::models::edge_column_ids", ids.columns);
    }
    made.edges = std::make_shared<EdgeOperands const>(edges);
    if (dropped != nullptr)
      made.forward = pmm::LocalSpmm<T>(
          with_dropped_values(made.forward.block(), edges.row_ids, edges.column_ids, *dropped));
  });
  return made;
}

template<class T>
OwnedAdjacency<T> read_edges(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                             pmm::Roles const& roles, pmm::Gather gather, bool has_keys,
                             std::vector<pmm::DroppedBlock<T>>* dropped) {
  auto const ids = runtime::together(
      grid.group(), [&] { return has_keys ? read_ids_of_block(grid, store, roles) : IdsOfBlock(); });
  return make_edges<T>(grid, roles, read_owned_block(grid, store, roles), ids, gather, dropped);
}

graph::StoreFacts without_transpose(graph::StoreFacts facts) {
  facts.is_symmetric = true;
  return facts;
}

void plan_edges(pmm::StepPlan& step, pmm::EdgeCounts const& counts, bool has_keys, bool drops_edges) {
  if (drops_edges) pmm::plan_dropped_values(step, counts.edges);
  pmm::plan_edge_block(step, counts);
  if (counts.features > 0)
    step.add_array("orthant::models::edge_features", step.scalar_bytes(counts.edges * counts.features));
  if (!has_keys) return;
  constexpr auto id_bytes = static_cast<std::int64_t>(sizeof(std::int64_t));
  step.add_array("orthant::models::edge_row_ids", counts.rows * id_bytes);
  step.add_array("orthant::models::edge_column_ids", counts.columns * id_bytes);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template OwnedAdjacency<T> make_edges(pmm::ProcessGrid const&, pmm::Roles const&, OwnedBlock,              \
                                        IdsOfBlock const&, pmm::Gather, std::vector<pmm::DroppedBlock<T>>*); \
  template OwnedAdjacency<T> read_edges(pmm::ProcessGrid const&, graph::GraphStore const&,                   \
                                        pmm::Roles const&, pmm::Gather, bool,                                \
                                        std::vector<pmm::DroppedBlock<T>>*);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
