#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The edges of a batch as layers read them that weigh neighbours by attention or take their maximum: the entries of this
// rank's block of the sampled subgraph, self loops among them, by rows and by columns (pmm/edges/edge_block.hpp). Scales of
// the block are left out: a softmax over the edges of the subgraph replaces them, and a maximum has none.

#include "models/gnn/operands/owned_adjacency.hpp"
#include "pmm/aggregate/needed_rows.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/neighbors/edge_dropout.hpp"
#include "runtime/arrays/allocation.hpp"
#include "sampling/block_sampler.hpp"

#include <array>
#include <cstdint>
#include <memory>
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

// Dropout of edges of a batch: values of its sampled blocks and of their transposes, which each pass fills (pmm/neighbors/edge_dropout.hpp).
// A draw is keyed by the batch's dropout key and by the original ids of its ends, so the block and its transpose, which lie apart,
// have the same edges. Self loops lie apart from a sampled block, and stay.

/// A block of a batch and its transpose, as products read them.
template<class T>
struct BatchBlocks {
  pmm::SparseBlock<T> forward, adjoint;
};

/// Original ids of the rows and the columns of a block.
struct BlockIds {
  runtime::Vector<std::int64_t> rows, columns;
};

/// Memory of the values, which grows only: of one batch at a time.
template<class T>
class DroppedBatch {
 public:
  /// Another batch begins.
  void begin() {
    for (auto& pair : pairs_)
      pair.is_used = false;
  }
  /// `blocks` with values in this memory. Of the pair of that index, `is_transposed` says that `blocks.forward` is its transpose. The
  /// first call for a pair since begin() adds both to `all`; later ones share their values.
  [[nodiscard]] BatchBlocks<T> with_values(std::size_t index, bool is_transposed, BatchBlocks<T> blocks,
                                           BlockIds const& ids, std::vector<pmm::DroppedBlock<T>>& all);

 private:
  struct Pair {
    std::array<runtime::GrowingVector<T>, 2> memory{
        runtime::GrowingVector<T>("orthant::pmm::dropped_values"),
        runtime::GrowingVector<T>("orthant::pmm::dropped_values")};
    std::array<runtime::Vector<T>, 2> values; // of the block and of its transpose, in the memory
    bool is_used = false;
  };
  std::vector<Pair> pairs_;
};

extern template class DroppedBatch<float>;
extern template class DroppedBatch<double>;

// Which rows of a sampled batch move between owners of vertices (pmm/aggregate/needed_rows.hpp). The lists are
// those of a whole graph, made anew for each batch: which rows and columns of its block of A~ have entries
// follows from the sample alone, so one exchange serves all layers and both directions. A self loop counts as
// an entry; it lies in the cell of its rank, so it makes no row move.

/// Agrees on the axes along which needed rows move, exchanges the lists, and takes out of the pair the rows and
/// columns that nothing touches on those axes. `sizes`: of the batch's cells. Collective over the grid's group.
/// Cost: O(non-zeros of the block), on the host.
template<class T>
[[nodiscard]] std::shared_ptr<pmm::NeededRows const>
keep_needed_rows(pmm::ProcessGrid const& grid, pmm::Roles const& roles, pmm::CellSizes const& sizes,
                 sampling::SampledPair<T>& pair, pmm::Gather gather);

/// Lists its calls, if these rows were the outcome.
void plan_needed_lists(pmm::StepPlan& step, pmm::Roles const& roles, pmm::NeededCountsOfAxes const& needed);

} // namespace orthant::models
