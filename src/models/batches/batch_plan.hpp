#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where the matrices of a batch lie, and what is known of a batch before it is sampled. Rows of a batch lie where those of
// the whole graph lie, so a rank's part of them is not balanced; on average it is.

#include "models/batches/batch_step.hpp"
#include "models/counts/needed_of_grid.hpp"

#include <functional>

namespace orthant::models {

/// Calls `visit` for every placement of a plan that has vertices in its rows.
template<class Plan, class Visit>
void for_each_vertex_matrix(Plan& plan, Visit const& visit) {
  for (auto* const linear : {&plan.projection, &plan.head}) {
    if (!*linear) continue;
    visit((*linear)->input);
    visit((*linear)->output);
  }
  for (auto& layer : plan.layers) {
    if (!layer.owners && layer.aggregates()) visit(layer.adjacency); // between owners it is a block of lists
    for (auto* const placement : {&layer.input, &layer.middle, &layer.output})
      visit(*placement);
    if (layer.second)
      for (auto* const placement : {&layer.second->input, &layer.second->output})
        visit(*placement);
  }
  if (plan.teleport)
    for (auto& site : plan.teleport->sites)
      visit(site);
}

/// How many vertices of a batch the rank has in its part of an order that is cut over these axes.
using CountOwnRows = std::function<std::int64_t(pmm::AxisSet, pmm::IndexOrder)>;

/// The plan of a batch of that many vertices, with the rows and columns that the rank at `coordinates` has in fact. `plan`: of the whole
/// graph.
[[nodiscard]] NetworkPlan plan_of_batch(NetworkPlan const& plan, std::int64_t num_vertices,
                                        pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                        CountOwnRows const& count);

/// What decides the operations of a batch of those counts, beside its plan. `shares_transposes`: whether the sampler's factors are
/// symmetric, so that a sampled block of a symmetric matrix serves as its transpose, too.
[[nodiscard]] NetworkEpochTraits traits_of_batch(graph::StoreFacts const& of_batch,
                                                 pmm::GridShape const& shape,
                                                 pmm::Coordinates const& coordinates, NetworkPlan const& plan,
                                                 NetworkSettings const& settings, bool shares_transposes);

/// A batch of that many vertices on average over batches: balanced parts, an even share of the edges whose both ends
/// it has, and of rows that move between owners the share of a random graph, 1 - exp(-d / G) (needed_rows.hpp).
[[nodiscard]] PlannedBatch expected_batch(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                          graph::StoreFacts const& facts, NetworkPlan const& plan,
                                          NetworkSettings const& settings, std::int64_t num_vertices);

} // namespace orthant::models
