#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a GCN runs on if it keeps only the rows that training vertices depend on (pruned_rows.hpp): each layer
// has a block of its own with its transpose, and features, targets and ids are those of the rows that are
// kept. Dropout is keyed by the same ids as ever.

#include "models/gnn/gcn_operands.hpp"
#include "models/pruning/pruned_rows.hpp"
#include "pmm/rows/row_loss.hpp"

#include <optional>

namespace orthant::models {

/// `features` are those of the whole graph, and shared if all of them are kept; `whole` is the block of the
/// layers that keep everything (Error if there are such layers and it is absent). Collective over the grid's
/// group.
template<class T>
[[nodiscard]] NetworkOperands<T>
make_pruned_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store, NetworkPlan const& plan,
                     NetworkSettings const& settings, PrunedRows const& rows,
                     InputFeatures<T> const& features, std::optional<OwnedAdjacency<T>> const& whole);

/// Those of the rows of the logits that are kept.
[[nodiscard]] pmm::RowTargets pruned_targets(pmm::RowTargets const& targets, PrunedRows const& rows);

} // namespace orthant::models
