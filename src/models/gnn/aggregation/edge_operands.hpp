#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The edges of this rank's block, for layers that read them (attention_aggregation.hpp, maximum_aggregation.hpp).

#include "models/gnn/operands/owned_adjacency.hpp"

namespace orthant::models {

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
