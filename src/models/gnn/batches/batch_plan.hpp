#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where the matrices of a batch lie, and what is known of a batch before it is sampled. Rows of a batch lie where those of
// the whole graph lie, so a rank's part of them is not balanced; on average it is.

#include "models/gnn/network/grid_choice.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/plan/counted_graph.hpp"
#include "models/gnn/plan/network_step.hpp"
#include "sampling/batch_builder.hpp"

#include <functional>
#include <optional>
#include <vector>

namespace orthant::models {

// What one rank does in a step of mini-batch training, listed before it runs (pmm/cost/step_plan.hpp): the
// lists of rows that move between owners, the passes of its group's batches, the sums over the data axis, and
// the update. How many of a batch's vertices and non-zeros are in this rank's blocks is known once the batch
// is sampled.

/// A batch as its operands say: plan with this rank's own rows, non-zeros and residuals.
struct PlannedBatch {
  NetworkPlan plan;
  NetworkEpochTraits traits;
};

/// Lists a step on these batches of one group, one after the other, as Trainer runs it.
void plan_batch_step(pmm::StepPlan& step, std::vector<PlannedBatch> const& batches,
                     NetworkSettings const& settings, OptimizerSettings const& optimizer = {});

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

// The batches that a training will draw, as every rank of any grid will find them: how many of their vertices and edges lie in
// its blocks. One process samples them from the whole graph, so no grid need exist.

class SampledBatch {
 public:
  /// Reads both orders of the whole graph, and if `reads_edges` its edges: they decide which rows move between owners,
  /// unless all do. Store and sampler must outlive it. Local; may throw.
  SampledBatch(runtime::Communicator const& self, graph::GraphStore const& store,
               sampling::Sampler const& sampler, bool reads_edges);

  /// Draws a batch of an epoch. Local.
  void draw(std::int64_t epoch, std::int64_t index);

  /// The rows that move. `plan`: of the whole graph. Cost: O(edges of the batch).
  [[nodiscard]] NeededOfGrid needed_on(pmm::GridShape const& shape, NetworkPlan const& plan,
                                       pmm::Gather gather) const;

  /// The batch on the rank at `coordinates`. All that is sent is exact; non-zeros are an even share. `needed`: of that grid.
  [[nodiscard]] PlannedBatch planned(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                     NetworkPlan const& plan, NetworkSettings const& settings,
                                     NeededOfGrid const& needed) const;

 private:
  [[nodiscard]] pmm::CellSizes cells_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                        pmm::Roles const& roles) const;

  graph::GraphStore const& store_;
  sampling::BatchBuilder<float> builder_;
  std::size_t vertices_ = 0; // range of the builder
  std::optional<sampling::BlockHandle> edges_;
  sampling::Batch<float> batch_;
  VertexOrders orders_; // of its vertices
};

/// What the ranks of a grid send in an epoch of batches, exactly.
struct SentInEpoch {
  std::int64_t most_sent_bytes = 0; // of the rank that sends most
  std::int64_t num_calls = 0;       // of the rank that makes most
  std::int64_t sent_bytes = 0;      // of all ranks together, as the metrics of train have them
  std::int64_t comm_bytes = 0;      // counted, the same
};

/// Lists every step of an epoch on every rank. Cost: lists of ranks x steps x accumulated batches.
[[nodiscard]] SentInEpoch sent_in_epoch(SampledBatch& batch, sampling::Sampler const& sampler,
                                        std::int64_t epoch, pmm::GridShape const& shape,
                                        graph::StoreFacts const& facts, NetworkSettings const& settings,
                                        std::int64_t num_accumulated);

// What mini-batch training would cost on every grid data x X x Y x Z of a number of ranks, none of which need exist: sums over the
// list of a step (batch_plan.hpp) on the average batch of uniform sampling.

/// Of one grid. All bytes are per rank, and those of the rank that has most.
struct BatchCost {
  Schedule schedule{};
  pmm::GridShape shape;
  std::int64_t num_steps = 0;    // of an epoch
  std::int64_t num_vertices = 0; // of an average batch
  std::int64_t sent_bytes = 0;   // in an epoch of batches, without evaluation
  std::int64_t num_calls = 0;    // collectives of that epoch
  std::int64_t array_bytes = 0;  // the most that is held at once
  pmm::StepSeconds seconds{};    // of that epoch on a machine; making batches is not counted
};

/// Batches of an epoch in which each of `num_groups` data groups takes as many: a multiple of groups x
/// num_accumulated. None if some groups have no work, or if there are not as many vertices.
[[nodiscard]] std::optional<std::int64_t> num_batches_of(std::int64_t num_vertices, BatchSizes const& batches,
                                                         int num_groups);

/// Steps of such an epoch on a grid that can_train_batches(); else 1.
[[nodiscard]] std::int64_t num_steps_of(std::int64_t num_vertices, BatchSizes const& batches, int num_groups);

/// Whether batches of that many vertices can be trained on such a grid.
[[nodiscard]] bool can_train_batches(pmm::GridShape const& shape, std::int64_t num_vertices,
                                     BatchSizes const& batches);

/// Lists an average step of the rank at `coordinates`. The grid can_train_batches().
[[nodiscard]] pmm::StepPlan list_of_batches(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                            graph::StoreFacts const& facts, NetworkPlan const& plan,
                                            NetworkSettings const& settings, BatchSizes const& batches,
                                            OptimizerSettings const& optimizer = {});

/// The costs of all grids that can_train_batches(), with any number of data groups, and that has_wide_parts() takes, for the
/// schedule of `settings`, in order of seconds. fp32.
[[nodiscard]] std::vector<BatchCost> costs_of_batches(int num_ranks, graph::StoreFacts const& facts,
                                                      NetworkSettings const& settings,
                                                      BatchSizes const& batches, std::int64_t least_width,
                                                      pmm::Machine const& machine,
                                                      OptimizerSettings const& optimizer = {});

/// How long an epoch of batches takes (grid_choice.hpp). Everything is copied.
[[nodiscard]] EpochSeconds mini_batch_seconds(graph::StoreFacts const& facts, NetworkSettings const& settings,
                                              BatchSizes const& batches, pmm::Machine const& machine);

} // namespace orthant::models
