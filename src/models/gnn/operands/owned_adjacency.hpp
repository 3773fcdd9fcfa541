#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The one block of A^ that a rank has if every vertex has one owner (pmm/aggregate/cells.hpp): it serves
// all layers, and both directions if the pattern of A is symmetric.

#include "graph/store/store_reader.hpp"
#include "models/gnn/operands/graph_operands.hpp"
#include "pmm/aggregate/aggregate.hpp"
#include "pmm/edges/edge_block.hpp"
#include "pmm/neighbors/edge_dropout.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace orthant::models {

/// The entries of the block as edges, for layers that weigh neighbours by attention or take their maximum.
struct EdgeOperands {
  pmm::EdgeBlock block;
  runtime::Vector<std::int64_t> row_ids, column_ids; // original ids; empty if nothing asks for them
};

template<class T>
struct OwnedAdjacency {
  pmm::CellSizes sizes;
  pmm::LocalSpmm<T> forward;  // A^[c,a]
  pmm::LocalSpmm<T> backward; // its transpose, or the same pattern with the scales of the transpose
  std::shared_ptr<pmm::NeededRows const> needed; // null: all rows move
  std::shared_ptr<EdgeOperands const> edges{};   // null: no layer asks for them
};

/// The way of the adjoint: the same one if the pattern is symmetric, else the transposed one.
[[nodiscard]] inline pmm::Flow backward_flow(graph::StoreFacts const& facts) {
  return facts.is_symmetric ? pmm::Flow::forward : pmm::Flow::transpose;
}

/// How many blocks have values of their own if edges are dropped out: one if both ways share the pattern.
[[nodiscard]] inline int num_dropped_blocks(graph::StoreFacts const& facts) {
  return backward_flow(facts) == pmm::Flow::forward ? 1 : 2;
}

/// A block as it is read, on the host.
struct OwnedBlock {
  pmm::CellSizes sizes;
  graph::CsrBlock csr;
  graph::Scales scales; // of A^: of the rows and the columns of the block
  std::optional<graph::Scales>
      transposed_scales{}; // if A is symmetric and A^ is not: of A^^T, rows of the block's columns
};

/// Reads this rank's block of the whole graph; cells are contiguous in order p1. From a store of two orders a
/// rank reads all columns of its rows, and keeps those of its cells. Collective over the grid's group.
[[nodiscard]] OwnedBlock read_owned_block(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                          pmm::Roles const& roles);
/// The block as aggregations use it. `gather` says which rows they move; `backward` is the way of the adjoint:
/// Flow::forward needs a symmetric pattern. Collective over the grid's group.
template<class T>
[[nodiscard]] OwnedAdjacency<T> make_owned_adjacency(pmm::ProcessGrid const& grid, pmm::Roles const& roles,
                                                     OwnedBlock block, pmm::Gather gather,
                                                     pmm::Flow backward);

/// Both for the whole graph. `dropped`, if edges are dropped out: gets the blocks whose values a step fills.
template<class T>
[[nodiscard]] OwnedAdjacency<T> read_owned_adjacency(pmm::ProcessGrid const& grid,
                                                     graph::GraphStore const& store, pmm::Roles const& roles,
                                                     pmm::Gather gather = pmm::Gather::all,
                                                     std::vector<pmm::DroppedBlock<T>>* dropped = nullptr);

/// Lists the arrays of make_owned_adjacency(), for cells of these sizes; and those of both for the whole graph.
void plan_made_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::CellSizes const& sizes,
                         std::int64_t num_nonzeros, pmm::Flow backward);
void plan_owned_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::CellSizes const& sizes,
                          std::int64_t num_nonzeros, bool drops_edges = false);
/// Original ids of the vertices at some ranges of order p1, one range behind the other. Not collective.
[[nodiscard]] std::vector<std::int64_t> read_owned_ids(graph::GraphStore const& store,
                                                       std::vector<runtime::Range> const& ranges);

// The edges of this rank's block, for layers that read them (attention_aggregation.hpp, maximum_aggregation.hpp).

/// Reads this rank's block with its edges, and without a transpose: lists by column take its place. `has_keys`: with the
/// original ids of its rows and columns, by which coefficients are dropped and ties are broken. Collective over the grid's group.
template<class T>
[[nodiscard]] OwnedAdjacency<T> read_edges(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                           pmm::Roles const& roles, bool has_keys);
/// The facts by which plan_owned_adjacency() lists that block.
[[nodiscard]] graph::StoreFacts without_transpose(graph::StoreFacts facts);
/// Lists what the edges have beside it.
void plan_edges(pmm::StepPlan& step, pmm::CellSizes const& sizes, std::int64_t num_edges, bool has_keys);

} // namespace orthant::models
