#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The edges of a batch as layers read them that weigh neighbours by attention or take their maximum: the entries of this
// rank's block of the sampled subgraph, self loops among them, by rows and by columns (pmm/edges/edge_block.hpp). Scales of
// the block are left out: a softmax over the edges of the subgraph replaces them, and a maximum has none.

#include "models/core/owned_adjacency.hpp"
#include "sampling/block_sampler.hpp"

#include <vector>

namespace orthant::models {

/// In host memory. Arrays are used again.
struct HostEdges {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  std::vector<runtime::Offset> row_offsets;    // [num_rows + 1]
  std::vector<runtime::LocalColumn> columns;   // [edges] ascending within a row
  std::vector<runtime::Offset> column_offsets; // [num_columns + 1]
  std::vector<runtime::LocalColumn> rows;      // [edges] ascending within a column
  std::vector<runtime::Offset> places;         // [edges] where that edge is in `columns`
};

/// edges := those of the block. Local; no Kokkos and no MPI. Cost: O(edges + rows + columns).
template<class T>
void fill_edges(sampling::SampledBlock<T> const& block, HostEdges& edges);

/// The edges as kernels read them, with the original ids of rows and columns. Lent: all three must outlive the result, unchanged.
[[nodiscard]] EdgeOperands lend_edges(HostEdges& edges, std::vector<std::int64_t>& row_ids,
                                      std::vector<std::int64_t>& column_ids);

/// The same edges as what OwnedAdjacency has beside them: patterns of the block and of its transpose, which share their memory.
template<class T>
[[nodiscard]] OwnedAdjacency<T> adjacency_of_edges(pmm::CellSizes sizes, EdgeOperands edges);

} // namespace orthant::models
