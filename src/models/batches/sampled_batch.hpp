#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The batches that a training will draw, as every rank of any grid will find them: how many of their vertices and edges lie in
// its blocks. One process samples them from the whole graph, so no grid need exist.

#include "models/batches/batch_plan.hpp"
#include "models/counts/counted_relayouts.hpp"
#include "sampling/batch_builder.hpp"

#include <optional>
#include <vector>

namespace orthant::models {

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

} // namespace orthant::models
