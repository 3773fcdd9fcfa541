#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Plans of batches: placements of a batch's matrices, the list of a training step, and costs on any grid. A rank has the rows of those
// vertices of a batch that it has in the whole graph, so parts are balanced only on average.

#include "models/gnn/network/counted_graph.hpp"
#include "models/gnn/network/grid_choice.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/plan/network_step.hpp"
#include "sampling/batch_builder.hpp"

#include <functional>
#include <optional>
#include <vector>

namespace orthant::models {

// A step of mini-batch training on one rank, listed before it runs (pmm/cost/step_plan.hpp): exchange of the lists of needed rows,
// passes of its group's batches, sums over the data axis, and the update. The numbers of a batch's vertices and non-zeros in this
// rank's blocks are known after sampling.

/// A batch, with this rank's numbers of rows, non-zeros and residuals.
struct PlannedBatch {
  NetworkPlan plan;
  NetworkEpochTraits traits;
};

/// Lists a step with these batches of one group, one after the other, as Trainer runs it.
void plan_batch_step(pmm::StepPlan& step, std::vector<PlannedBatch> const& batches,
                     NetworkSettings const& settings, OptimizerSettings const& optimizer = {});

/// Calls `visit` for every placement of the plan whose rows are vertices.
template<class Plan, class Visit>
void for_each_vertex_matrix(Plan& plan, Visit const& visit) {
  for (auto* const linear : {&plan.projection, &plan.head}) {
    if (!*linear) continue;
    visit((*linear)->input);
    visit((*linear)->output);
  }
  for (auto& layer : plan.layers) {
    if (!layer.owners && layer.aggregates()) visit(layer.adjacency); // `rows` uses cells instead
    for (auto* const placement : {&layer.input, &layer.middle, &layer.output})
      visit(*placement);
    for (auto* const linear : {&layer.second, &layer.residual_map})
      if (*linear)
        for (auto* const placement : {&(*linear)->input, &(*linear)->output})
          visit(*placement);
  }
  if (plan.teleport)
    for (auto& site : plan.teleport->sites)
      visit(site);
  if (plan.jump)
    for (auto& map : plan.jump->maps)
      for (auto* const placement : {&map.input, &map.output})
        visit(*placement);
}

/// Returns the number of a batch's vertices in the rank's part of an order that is partitioned over these axes.
using CountOwnRows = std::function<std::int64_t(pmm::AxisSet, pmm::IndexOrder)>;

/// Plan of a batch with this number of vertices, with the actual numbers of rows and columns of the rank at `coordinates`.
/// `plan`: of the whole graph.
[[nodiscard]] NetworkPlan plan_of_batch(NetworkPlan const& plan, std::int64_t num_vertices,
                                        pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                        CountOwnRows const& count);

/// Facts that, together with the plan, determine the operations of a batch with these counts. `shares_transposes`: the sampler's
/// factors are symmetric, so a sampled block of a symmetric matrix is also used as its transpose.
[[nodiscard]] NetworkEpochTraits traits_of_batch(graph::StoreFacts const& of_batch,
                                                 pmm::GridShape const& shape,
                                                 pmm::Coordinates const& coordinates, NetworkPlan const& plan,
                                                 NetworkSettings const& settings, bool shares_transposes);

/// An average batch with this number of vertices: balanced parts, an even share of the edges with both ends in the batch, and, of
/// the rows that are exchanged, the fraction 1 - exp(-d / G) of a random graph (needed_rows.hpp).
[[nodiscard]] PlannedBatch expected_batch(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                          graph::StoreFacts const& facts, NetworkPlan const& plan,
                                          NetworkSettings const& settings, std::int64_t num_vertices);

// The batches of a training, as each rank of any grid will have them: numbers of their vertices and edges in its blocks. One
// process samples them from the whole graph; the ranks of the grid need not exist.

class SampledBatch {
 public:
  /// Returns true if the plan of a batch needs its edges: for needed rows, or for the pairs of attention within relations.
  [[nodiscard]] static bool needs_edges(NetworkPlan const& plan, NetworkSettings const& settings);
  /// Reads both orders of the whole graph and, with `reads_edges`, its edges. Store and sampler must outlive this object. Local. Throws
  /// UserError if the store cannot be read.
  SampledBatch(runtime::Communicator const& self, graph::GraphStore const& store,
               sampling::Sampler const& sampler, bool reads_edges);

  /// Draws a batch of an epoch. Local.
  void draw(std::int64_t epoch, std::int64_t index);

  /// Rows that ranks of the grid exchange. `plan`: of the whole graph. Cost: O(edges of the batch).
  [[nodiscard]] NeededOfGrid needed_on(pmm::GridShape const& shape, NetworkPlan const& plan,
                                       pmm::Gather gather) const;

  /// The batch on the rank at `coordinates`. All numbers that are sent are exact; non-zeros are an even share.
  /// `needed`: needed_on() this grid.
  [[nodiscard]] PlannedBatch planned(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                     NetworkPlan const& plan, NetworkSettings const& settings,
                                     NeededOfGrid const& needed) const;

 private:
  [[nodiscard]] pmm::CellSizes cells_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                        pmm::Roles const& roles) const;
  [[nodiscard]] pmm::RelationEdgeCounts relation_edges_on(pmm::GridShape const& shape,
                                                          pmm::Coordinates const& coordinates,
                                                          pmm::Roles const& roles) const;

  graph::GraphStore const& store_;
  sampling::BatchBuilder<float> builder_;
  std::size_t vertices_ = 0; // range of the builder
  std::optional<sampling::BlockHandle> edges_;
  sampling::Batch<float> batch_;
  VertexOrders orders_; // of the batch's vertices
};

/// Exact communication of an epoch of batches on a grid.
struct SentInEpoch {
  std::int64_t most_sent_bytes = 0; // on the rank that sends most
  std::int64_t num_calls = 0;       // on the rank that makes most
  std::int64_t sent_bytes = 0;      // sum over all ranks, as in the metrics of train
  std::int64_t comm_bytes = 0;      // counted bytes, likewise
};

/// Lists every step of an epoch on every rank. Cost: lists of ranks x steps x accumulated batches.
[[nodiscard]] SentInEpoch sent_in_epoch(SampledBatch& batch, sampling::Sampler const& sampler,
                                        std::int64_t epoch, pmm::GridShape const& shape,
                                        graph::StoreFacts const& facts, NetworkSettings const& settings,
                                        std::int64_t num_accumulated);

// Predicts the cost of mini-batch training on every grid data x X x Y x Z with a given number of ranks, without their processes: sums over
// the list of a step on an average batch of uniform sampling.

/// Cost of one grid. All bytes are per rank, on the rank with the most.
struct BatchCost {
  Schedule schedule{};
  pmm::GridShape shape;
  std::int64_t num_steps = 0;    // per epoch
  std::int64_t num_vertices = 0; // in an average batch
  std::int64_t sent_bytes = 0;   // per epoch of batches, without evaluation
  std::int64_t num_calls = 0;    // collectives of that epoch
  std::int64_t array_bytes = 0;  // largest sum of arrays held at once
  pmm::StepSeconds seconds{};    // of that epoch; does not include making batches
};

/// Number of batches in an epoch: a multiple of num_groups x num_accumulated, so that all data groups have equally many. nullopt if some
/// groups would have no work, or if there are fewer vertices than batches.
[[nodiscard]] std::optional<std::int64_t> num_batches_of(std::int64_t num_vertices, BatchSizes const& batches,
                                                         int num_groups);

/// Number of steps of an epoch with num_batches_of() batches if can_train_batches() holds for the grid; otherwise 1.
[[nodiscard]] std::int64_t num_steps_of(std::int64_t num_vertices, BatchSizes const& batches, int num_groups);

/// Whether batches of these sizes can be trained on the grid.
[[nodiscard]] bool can_train_batches(pmm::GridShape const& shape, std::int64_t num_vertices,
                                     BatchSizes const& batches);

/// Lists an average step of the rank at `coordinates`. can_train_batches() must hold for the grid.
[[nodiscard]] pmm::StepPlan list_of_batches(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                            graph::StoreFacts const& facts, NetworkPlan const& plan,
                                            NetworkSettings const& settings, BatchSizes const& batches,
                                            OptimizerSettings const& optimizer = {});

/// Costs of all grids, with any number of data groups, for which can_train_batches() and has_wide_parts() hold, with the schedule
/// of `settings`. fp32. The fastest grid is first.
[[nodiscard]] std::vector<BatchCost> costs_of_batches(int num_ranks, graph::StoreFacts const& facts,
                                                      NetworkSettings const& settings,
                                                      BatchSizes const& batches, std::int64_t least_width,
                                                      pmm::Machine const& machine,
                                                      OptimizerSettings const& optimizer = {});

/// Seconds of an epoch of batches (gnn/network/grid_choice.hpp). Copies all arguments.
[[nodiscard]] EpochSeconds mini_batch_seconds(graph::StoreFacts const& facts, NetworkSettings const& settings,
                                              BatchSizes const& batches, pmm::Machine const& machine);

} // namespace orthant::models
