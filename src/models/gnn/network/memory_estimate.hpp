#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The arrays of a training, listed from layouts and counts alone, before anything is read
// (pmm/cost/step_plan.hpp); and what a rank needs by that list.

#include "models/gnn/network/graph_network.hpp"
#include "models/training/optimizer.hpp"

#include <cstdint>

namespace orthant::models {

/// Buffers of BLAS, HDF5 and MPI that any job takes: measured with Open MPI 4.1 on one node, graphs of 3 thousand to 200 thousand
/// vertices, 1 to 4 ranks.
inline constexpr std::int64_t common_library_bytes = std::int64_t{7} << 20;

/// Bytes on one rank.
struct MemoryEstimate {
  std::int64_t arrays = 0;      // that the first step holds: on a device all of its memory, without libraries
  std::int64_t loading = 0;     // the most that is held until the first step begins, what is read included
  std::int64_t messages = 0;    // MPI's copies of what is under way
  std::int64_t checkpoints = 0; // copies on the host
  std::int64_t judging = 0;     // for areas under the ROC curve, on the host
  std::int64_t products = 0; // what products keep from the first step on: libraries, and copies of operands
  std::int64_t libraries = common_library_bytes;

  /// The most there will ever be.
  [[nodiscard]] std::int64_t peak() const;
};

/// What MPI holds of the collectives of a listed step.
[[nodiscard]] std::int64_t message_bytes(pmm::StepPlan const& step);
/// What the libraries that multiply the dense products of a listed step take on first use (measured), with the largest weight that is
/// packed.
template<class T>
[[nodiscard]] std::int64_t product_library_bytes(pmm::StepPlan const& step);
/// The most of transformers, whose products are not tall, but for packed weights.
template<class T>
[[nodiscard]] std::int64_t library_bytes_of_transformers();

/// Lists the arrays of full-graph training, in the order in which they are allocated: network, loss,
/// optimiser. `features_may_move`: InputFeatures::may_move. On a device not those of the vendor's libraries and of sparse kernels.
void plan_full_graph_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                            NetworkSettings const& settings, NetworkEpochTraits const& traits,
                            OptimizerSettings const& optimizer, bool features_may_move = true);

/// For the rank of `grid` that calls, if non-zeros fall evenly on blocks and rows at random on the two
/// orders. T is the scalar of training. Small objects (about 100 KiB) are not counted.
template<class T>
[[nodiscard]] MemoryEstimate estimate_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                                             NetworkPlan const& plan, NetworkSettings const& settings,
                                             OptimizerSettings const& optimizer);

/// Counts of a batch of at most that many vertices, on average: an edge is there if both its ends are.
[[nodiscard]] graph::StoreFacts facts_of_batch(graph::StoreFacts facts, std::int64_t num_vertices);

/// What decides the memory of mini-batch training beside model and optimiser.
struct BatchSizes {
  std::int64_t num_vertices = 0;    // of a batch
  std::int64_t num_accumulated = 1; // batches of a group in a step
  bool has_full_graph = false;      // the whole graph is evaluated or trained on, too
  bool renormalizes = false;        // edges by degrees within the batch: neighbors are kept by id
  bool trains_full_graph = false;   // else it is evaluated alone, which drops no edges
  bool has_strata =
      false;              // vertices of several kinds: edges between them have factors that are not symmetric
  bool prefetches = true; // the next batch is in memory, too: where a core is free for it
};

/// Lists the arrays of training on batches, without the sampler's tables and its lists of vertices.
/// `batches.num_vertices` is at most the graph's.
void plan_mini_batch_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                            NetworkSettings const& settings, OptimizerSettings const& optimizer,
                            BatchSizes const& batches);

/// What a rank needs by that list.
template<class T>
[[nodiscard]] MemoryEstimate
estimate_mini_batch_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                           NetworkPlan const& plan, NetworkSettings const& settings,
                           OptimizerSettings const& optimizer, BatchSizes const& batches);

} // namespace orthant::models
