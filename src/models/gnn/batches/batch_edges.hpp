#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Edges of a batch: as operands of layers that weight neighbors by attention, take their maximum or have relations, their dropout, and the rows
// that they require. The edges are the entries of this rank's block of the sampled subgraph, including self loops, by rows and by
// columns (pmm/edges/edge_block.hpp). Scales of the block are ignored: attention replaces them by a softmax over the subgraph's
// edges, and a maximum has none.

#include "models/gnn/operands/owned_adjacency.hpp"
#include "models/gnn/operands/relation_operands.hpp"
#include "pmm/aggregate/needed_rows.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/neighbors/edge_dropout.hpp"
#include "runtime/arrays/allocation.hpp"
#include "sampling/block_sampler.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace orthant::models {

/// Edges of a block in host memory. Arrays are reused.
struct HostEdges {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  std::vector<runtime::Offset> row_offsets;    // [num_rows + 1]
  std::vector<runtime::LocalColumn> columns;   // [edges] ascending within a row
  std::vector<runtime::Offset> column_offsets; // [num_columns + 1]
  std::vector<runtime::LocalColumn> rows;      // [edges] ascending within a column
  std::vector<runtime::Offset> places;         // [edges] position of the edge in `columns`
  std::vector<runtime::Offset> entries; // [edges] row of the sampler's features of edges; empty without them
};

/// edges := the edges of the block. Local. Does not use Kokkos or MPI. Cost: O(edges + rows + columns).
template<class T>
void fill_edges(sampling::SampledBlock<T> const& block, HostEdges& edges);
/// features := the rows of the sampler's features of these edges, [edges x num_features]. Local. Does not use Kokkos or MPI.
template<class T>
void fill_edge_features(std::span<T const> of_sampler, std::int64_t num_features, HostEdges const& edges,
                        std::vector<T>& features);

/// Views of the edges for kernels, with the original ids of rows and columns. On a device, copies. All three arguments must outlive
/// the result and must not change.
[[nodiscard]] EdgeOperands lend_edges(HostEdges& edges, std::vector<std::int64_t>& row_ids,
                                      std::vector<std::int64_t>& column_ids);

/// The patterns of the block and of its transpose, which share the memory of `edges`, as an OwnedAdjacency.
template<class T>
[[nodiscard]] OwnedAdjacency<T> adjacency_of_edges(pmm::CellSizes sizes, EdgeOperands edges);

/// The entries of a block with relations of a batch, without self relations. `root_types`: as in RelationShape. Local. Does not use Kokkos
/// or MPI.
template<class T>
[[nodiscard]] pmm::TypedEntries entries_of(sampling::SampledBlock<T> const& block,
                                           graph::StoreFacts const& facts,
                                           std::vector<std::int64_t> const& root_types);

/// Lists a block with relations of a batch. `row_ids`: original ids of its rows. Local. Does not use Kokkos or MPI. Cost: O(edges + rows +
/// columns + relations).
template<class T>
void fill_relations(graph::StoreFacts const& facts, std::vector<std::int64_t> const& root_types,
                    sampling::SampledBlock<T> const& block, std::vector<std::int64_t> const& row_ids,
                    pmm::HostRelationBlock<T>& listed);
/// Views of the block for kernels. On a device, copies. `listed` must outlive the result and must not change.
template<class T>
[[nodiscard]] RelationOperand<T> lend_relations(pmm::HostRelationBlock<T>& listed, pmm::CellSizes sizes);

/// Rows of a sparse feature matrix, and their transpose.
template<class T>
struct HostSparseRows {
  std::vector<runtime::Offset> row_offsets;    // [rows + 1]
  std::vector<runtime::LocalColumn> columns;   // [nnz]
  std::vector<T> values;                       // [nnz]; empty: a pattern
  std::vector<T> row_scale;                    // [rows]; empty: all 1
  std::vector<runtime::Offset> column_offsets; // [columns + 1] of the transpose
  std::vector<runtime::LocalColumn> rows;      // [nnz]
  std::vector<T> transposed_values;            // [nnz]; empty: a pattern
};

/// Sparse features of which a batch takes rows: borrowed lists as in HostSparseRows.
template<class T>
struct SparseRowsOfGraph {
  std::span<runtime::Offset const> row_offsets;
  std::span<runtime::LocalColumn const> columns;
  std::span<T const> values, row_scale;
};
/// sparse := these rows, and their transpose. Local.
template<class T>
void fill_sparse_rows(std::vector<std::int32_t> const& rows, std::int64_t num_columns,
                      SparseRowsOfGraph<T> const& from, HostSparseRows<T>& sparse);

// Dropout of edges in a batch. Each pass fills the values of the sampled blocks and of their transposes (pmm/neighbors/edge_dropout.hpp).
// The random number of an edge depends on the batch's dropout key and on the original ids of the edge's ends, so a block and its transpose,
// which are stored separately, keep the same edges. Self loops are stored separately from a sampled block, and are never dropped.

/// A block of a batch and its transpose, as products read them.
template<class T>
struct BatchBlocks {
  pmm::SparseBlock<T> forward, adjoint;
};

/// Original ids of the rows and the columns of a block.
struct BlockIds {
  runtime::Vector<std::int64_t> rows, columns;
};

/// Memory of the values of one batch at a time. It never shrinks.
template<class T>
class DroppedBatch {
 public:
  /// Begins another batch.
  void begin() {
    for (auto& pair : pairs_)
      pair.is_used = false;
  }
  /// Returns `blocks` with values in this memory. `is_transposed`: `blocks.forward` is the transpose of the pair with this index.
  /// The first call for a pair after begin() appends both blocks to `all`; later calls share the values.
  [[nodiscard]] BatchBlocks<T> with_values(std::size_t index, bool is_transposed, BatchBlocks<T> blocks,
                                           BlockIds const& ids, std::vector<pmm::DroppedBlock<T>>& all);
  /// Like the function above, for the block of a batch whose layers read single edges: its transpose has no values.
  [[nodiscard]] pmm::SparseBlock<T> with_values(pmm::SparseBlock<T> block, BlockIds const& ids,
                                                std::vector<pmm::DroppedBlock<T>>& all);

 private:
  struct Pair {
    std::array<runtime::GrowingVector<T>, 2> memory{
        runtime::GrowingVector<T>("orthant::pmm::dropped_values"),
        runtime::GrowingVector<T>("orthant::pmm::dropped_values")};
    std::array<runtime::Vector<T>, 2> values; // of the block and of its transpose; views of `memory`
    bool is_used = false;
  };
  std::vector<Pair> pairs_;
};

extern template class DroppedBatch<float>;
extern template class DroppedBatch<double>;

/// A sampled block for products, without a copy on the host. `from` must outlive the result and must not change.
template<class T>
[[nodiscard]] pmm::SparseBlock<T> to_sparse_block(sampling::SampledBlock<T> const& from);

// Rows of a sampled batch that are exchanged in the schedule `rows` (pmm/aggregate/needed_rows.hpp). New lists are made for each batch: the
// sample determines which rows and columns of its block of A~ have entries, so one exchange of lists serves all layers and both directions.
// A self loop counts as an entry. Its row and column belong to the same rank, so it does not cause a message.

/// Agrees on the axes along which only needed rows are exchanged, exchanges the lists, and removes rows and columns without entries on
/// these axes from the pair. `sizes`: cells of the batch. Collective over the grid's group. Cost: O(non-zeros of the block), on the host.
template<class T>
[[nodiscard]] std::shared_ptr<pmm::NeededRows const>
keep_needed_rows(pmm::ProcessGrid const& grid, pmm::Roles const& roles, pmm::CellSizes const& sizes,
                 sampling::SampledPair<T>& pair, pmm::Gather gather);

/// Lists the calls of keep_needed_rows() if it returns these rows.
void plan_needed_lists(pmm::StepPlan& step, pmm::Roles const& roles, pmm::NeededCountsOfAxes const& needed);

} // namespace orthant::models
