#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The single block of A^ of a rank in the schedule `rows`, in which each vertex has one owner (pmm/aggregate/cells.hpp). All layers
// use it; if the pattern of A is symmetric, so do both directions.

#include "graph/store/store_reader.hpp"
#include "models/gnn/operands/graph_operands.hpp"
#include "pmm/aggregate/aggregate.hpp"
#include "pmm/edges/edge_block.hpp"
#include "pmm/neighbors/edge_dropout.hpp"
#include "pmm/relations/relation_block.hpp"
#include "pmm/relations/relation_edges.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace orthant::models {

/// Entries of the block as edges, for layers that weight neighbors by attention or take their maximum.
struct EdgeOperands {
  pmm::EdgeBlock block;
  runtime::Vector<std::int64_t> row_ids, column_ids; // original ids; empty if no layer needs them
  pmm::MovedRows moved_columns, moved_rows;          // empty if all rows are exchanged
};

/// The block of a layer with relations. Copies share memory.
template<class T>
struct RelationOperand {
  std::shared_ptr<pmm::RelationBlock<T> const> block;
  pmm::CellSizes sizes;                              // schedule `rows`
  std::shared_ptr<pmm::RelationEdges const> edges{}; // for attention, in place of `block`
  runtime::Vector<T>
      types{}; // for attention with biases: [own rows x types of vertices] 1 for the type of the row
};

template<class T>
struct OwnedAdjacency {
  pmm::CellSizes sizes;
  pmm::LocalSpmm<T> forward;  // A^[c,a]
  pmm::LocalSpmm<T> backward; // transpose of `forward`, or the same pattern with the scales of the transpose
  std::shared_ptr<pmm::NeededRows const> needed; // null: all rows are exchanged
  std::shared_ptr<EdgeOperands const> edges{};   // null if no layer needs them
  runtime::Vector<T> edge_features{}; // [edges x features]; empty if edges have none, or without `edges`
  RelationOperand<T> relations{};     // in place of `forward` and `backward`
};

/// Numbers of rows that are exchanged; empty if all are.
template<class T>
[[nodiscard]] pmm::NeededCountsOfAxes needed_counts_of(OwnedAdjacency<T> const& adjacency) {
  return adjacency.needed ? adjacency.needed->counts() : pmm::NeededCountsOfAxes{};
}

/// Flow of the adjoint: forward if the pattern is symmetric, else transpose.
[[nodiscard]] inline pmm::Flow backward_flow(graph::StoreFacts const& facts) {
  return facts.is_symmetric ? pmm::Flow::forward : pmm::Flow::transpose;
}

/// Number of blocks with values after edge dropout: 1 if both directions share the pattern, else 2.
[[nodiscard]] inline int num_dropped_blocks(graph::StoreFacts const& facts) {
  return backward_flow(facts) == pmm::Flow::forward ? 1 : 2;
}

/// A block on the host, as it is read.
struct OwnedBlock {
  pmm::CellSizes sizes;
  graph::CsrBlock csr;
  graph::Scales scales;                             // of A^: of the rows and the columns of the block
  std::optional<graph::Scales> transposed_scales{}; // only if A is symmetric and A^ is not: scales of A^^T
};

/// Reads this rank's block of the whole graph; cells are contiguous in order p1. If the store has two orders, a rank reads all
/// columns of its rows and keeps those of its cells. Collective over the grid's group.
[[nodiscard]] OwnedBlock read_owned_block(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                          pmm::Roles const& roles);
/// Makes the adjacency from a block. `gather`: rows that aggregations exchange. `backward`: flow of the adjoint; Flow::forward
/// requires a symmetric pattern. Collective over the grid's group.
template<class T>
[[nodiscard]] OwnedAdjacency<T> make_owned_adjacency(pmm::ProcessGrid const& grid, pmm::Roles const& roles,
                                                     OwnedBlock block, pmm::Gather gather,
                                                     pmm::Flow backward);

/// Reads the block and makes the adjacency of the whole graph. `dropped`: null if no edges are dropped; otherwise, each block whose values
/// the steps fill is appended to it. Collective over the grid's group.
template<class T>
[[nodiscard]] OwnedAdjacency<T> read_owned_adjacency(pmm::ProcessGrid const& grid,
                                                     graph::GraphStore const& store, pmm::Roles const& roles,
                                                     pmm::Gather gather = pmm::Gather::all,
                                                     std::vector<pmm::DroppedBlock<T>>* dropped = nullptr);

/// List the arrays of make_owned_adjacency() for cells of these sizes, and the arrays of read_owned_adjacency().
void plan_made_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::CellSizes const& sizes,
                         std::int64_t num_nonzeros, pmm::Flow backward);
void plan_owned_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::CellSizes const& sizes,
                          std::int64_t num_nonzeros, bool drops_edges = false);
/// Original ids of the vertices in these ranges of order p1, one range after the other. Not collective.
[[nodiscard]] std::vector<std::int64_t> read_owned_ids(graph::GraphStore const& store,
                                                       std::vector<runtime::Range> const& ranges);

/// Original ids of the rows and columns of a block, one per row and column of its cells.
struct IdsOfBlock {
  std::vector<std::int64_t> rows, columns;
  std::vector<std::int64_t>
      own_rows{}; // of the rows that this rank owns; only for attention within relations
};
/// Ids of this rank's block of the whole graph. Not collective.
[[nodiscard]] IdsOfBlock read_ids_of_block(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                           pmm::Roles const& roles);
/// Gives a block, made with the flow `backward_flow`, new values that the steps fill. Appends to `dropped` the block and, unless both share
/// the values, its adjoint. Not collective.
template<class T>
void drop_values(OwnedAdjacency<T>& made, IdsOfBlock ids, pmm::Flow backward_flow,
                 std::vector<pmm::DroppedBlock<T>>& dropped);

// Edges of this rank's block, for layers that read them (attention_aggregation.hpp, maximum_aggregation.hpp).

/// Reads this rank's block with its edges; lists by column replace the transpose. The block keeps all rows and columns, also those that
/// are not exchanged (pmm/edges/edge_block.hpp). `has_keys`: also reads the original ids of its
/// rows and columns, for dropout and to break ties. `dropped`: null if no edges are dropped; otherwise, which requires keys, the block is
/// appended to it. The steps fill its values with 0 for dropped edges. Collective over the grid's group.
template<class T>
[[nodiscard]] OwnedAdjacency<T> read_edges(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                           pmm::Roles const& roles, pmm::Gather gather, bool has_keys,
                                           std::vector<pmm::DroppedBlock<T>>* dropped = nullptr);
/// Makes the block of read_edges() from a block that has been read, with `ids` unless they are empty. Collective over the grid's group.
template<class T>
[[nodiscard]] OwnedAdjacency<T> make_edges(pmm::ProcessGrid const& grid, pmm::Roles const& roles,
                                           OwnedBlock block, IdsOfBlock const& ids, pmm::Gather gather,
                                           std::vector<pmm::DroppedBlock<T>>* dropped);
/// Facts for which plan_owned_adjacency() lists the block of read_edges().
[[nodiscard]] graph::StoreFacts without_transpose(graph::StoreFacts facts);
/// Lists the arrays of the edges, in addition to those of the block.
void plan_edges(pmm::StepPlan& step, pmm::EdgeCounts const& counts, bool has_keys, bool drops_edges);

} // namespace orthant::models
