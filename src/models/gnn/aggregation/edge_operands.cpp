// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation/edge_operands.hpp"

#include "models/gnn/operands/vertex_order.hpp"
#include "models/parameters/device_copy.hpp"
#include "runtime/comm/together.hpp"

namespace orthant::models {

template<class T>
OwnedAdjacency<T> read_edges(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                             pmm::Roles const& roles, bool has_keys) {
  auto adjacency = make_owned_adjacency<T>(grid, roles, read_owned_block(grid, store, roles),
                                           pmm::Gather::all, pmm::Flow::forward);
  runtime::together(grid.group(), [&] {
    EdgeOperands edges;
    edges.block = pmm::make_edge_block(adjacency.forward.block().csr);
    if (has_keys) {
      auto const n = store.facts().num_vertices;
      edges.row_ids = to_vector<std::int64_t>(
          "orthant::models::edge_row_ids",
          read_owned_ids(store, block_rows(grid.shape(), grid.coordinates(), roles, n)));
      edges.column_ids = to_vector<std::int64_t>(
          "orthant::models::edge_column_ids",
          read_owned_ids(store, block_columns(grid.shape(), grid.coordinates(), roles, n)));
    }
    adjacency.edges = std::make_shared<EdgeOperands const>(edges);
  });
  return adjacency;
}

graph::StoreFacts without_transpose(graph::StoreFacts facts) {
  facts.is_symmetric = true;
  return facts;
}

void plan_edges(pmm::StepPlan& step, pmm::CellSizes const& sizes, std::int64_t num_edges, bool has_keys) {
  pmm::plan_edge_block(step, {sizes.num_rows(), sizes.num_columns(), num_edges});
  if (!has_keys) return;
  constexpr auto id_bytes = static_cast<std::int64_t>(sizeof(std::int64_t));
  step.add_array("orthant::models::edge_row_ids", sizes.num_rows() * id_bytes);
  step.add_array("orthant::models::edge_column_ids", sizes.num_columns() * id_bytes);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template OwnedAdjacency<T> read_edges(pmm::ProcessGrid const&, graph::GraphStore const&,                   \
                                        pmm::Roles const&, bool);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
