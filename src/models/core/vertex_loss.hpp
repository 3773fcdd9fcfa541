#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Loss and accuracy of a graph's vertices: softmax cross-entropy where each has one class, binary
// cross-entropy where it may have several. The loss is the mean over the labelled vertices of a split
// (several classes: over their known entries).

#include "graph/store/store_reader.hpp"
#include "pmm/rows/row_loss.hpp"

#include <array>

namespace orthant::models {

/// Loss and accuracy of train, valid and test; indexed by graph::Split.
using Scores = std::array<pmm::SplitMetrics, pmm::num_splits>;

/// The loss of vertices with such labels.
[[nodiscard]] pmm::LossKind loss_kind_of(graph::StoreFacts const& facts);

/// Lists the arrays of make_vertex_loss().
void plan_vertex_loss_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts,
                             pmm::Placement const& logits);

/// What the vertices of this rank's rows of such logits should be. Collective over the grid's group. Throws
/// UserError where the store has no labels or no split.
[[nodiscard]] pmm::RowTargets read_vertex_targets(pmm::ProcessGrid const& grid,
                                                  graph::GraphStore const& store,
                                                  pmm::Placement const& logits);

/// The loss of a store's vertices, for logits of that placement. Reads the targets of this rank's rows.
/// Collective over the grid's group. Throws UserError where the store has no labels, no split, or no labelled
/// training vertex.
template<class T>
[[nodiscard]] pmm::RowLoss<T> make_vertex_loss(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                               pmm::Placement const& logits);

} // namespace orthant::models
