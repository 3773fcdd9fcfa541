#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Memory of a rank in training, estimated before anything is read. The arrays are listed from layouts and counts alone
// (pmm/cost/step_plan.hpp).

#include "models/gnn/network/graph_network.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "models/training/gradient_sum.hpp"
#include "models/training/optimizer.hpp"

#include <cstdint>

namespace orthant::models {

/// Buffers of BLAS, HDF5 and MPI in any job: measured with Open MPI 4.1 on one node, graphs of 3 thousand to 200
/// thousand vertices, 1 to 4 ranks.
inline constexpr std::int64_t common_library_bytes = std::int64_t{7} << 20;

/// Bytes on one rank.
struct MemoryEstimate {
  std::int64_t arrays = 0;      // arrays of the first step; on a device all of its memory except libraries
  std::int64_t loading = 0;     // largest sum held before the first step, including what is read
  std::int64_t messages = 0;    // MPI's copies of messages in transit
  std::int64_t checkpoints = 0; // copies on the host
  std::int64_t judging = 0;     // arrays for areas under the ROC curve, on the host
  std::int64_t products = 0;    // memory of products from the first step on: libraries and copies of operands
  std::int64_t libraries = common_library_bytes;

  /// Largest sum held at once.
  [[nodiscard]] std::int64_t peak() const;
};

/// MPI's memory for the collectives of a listed step.
[[nodiscard]] std::int64_t message_bytes(pmm::StepPlan const& step);
/// Memory of the libraries for the dense products of a listed step (measured), with the largest packed weight.
template<class T>
[[nodiscard]] std::int64_t product_library_bytes(pmm::StepPlan const& step);
/// Upper bound for transformers without packed weights. Their products are not tall.
template<class T>
[[nodiscard]] std::int64_t library_bytes_of_transformers();
/// Bytes of the copies of operands that the dense products of a step round.
[[nodiscard]] std::int64_t rounded_operand_bytes(pmm::StepPlan const& step, pmm::GemmMath math);

/// Lists what full-graph and mini-batch training hold besides networks and operands.
void plan_targets_and_parameters(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                                 NetworkSettings const& settings, LinkCounts const& links);

/// Lists the arrays of full-graph training in the order of allocation: network, loss, optimizer. `features_may_move`: see
/// InputFeatures::may_move. On a device, arrays of vendor libraries and of sparse kernels are not listed.
void plan_full_graph_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                            NetworkSettings const& settings, NetworkEpochTraits const& traits,
                            OptimizerSettings const& optimizer, bool features_may_move = true);

/// Memory of the calling rank. Assumes that non-zeros are spread evenly over blocks and rows at random over the two orders. T: the
/// scalar type of training. Small objects (about 100 KiB) are not counted.
template<class T>
[[nodiscard]] MemoryEstimate estimate_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                                             NetworkPlan const& plan, NetworkSettings const& settings,
                                             OptimizerSettings const& optimizer);

/// Sizes that, together with model and optimizer, determine the memory of mini-batch training.
struct BatchSizes {
  std::int64_t num_vertices = 0;    // per batch
  std::int64_t num_accumulated = 1; // batches per step and group
  bool has_full_graph = false;      // the whole graph is also evaluated or trained on
  bool renormalizes = false;        // edges are scaled by degrees within the batch
  bool trains_full_graph = false;   // false: it is only evaluated, which drops no edges
  bool has_strata = false; // vertices of several kinds; factors of edges between them are not symmetric
  bool prefetches = true;  // the next batch is also in memory, if a core is free to make it
  bool are_made_by_kernels = false; // if the model allows it; the next batch is then always in memory
};

/// Whether kernels can make batches of this network, on groups of `num_ranks`: if all layers multiply by A~, all rows are exchanged, features
/// are dense or trained, and the graph has at most 2^32 vertices.
[[nodiscard]] bool fits_kernels(graph::StoreFacts const& facts, NetworkPlan const& plan, pmm::Gather gather,
                                int num_ranks);

/// Elements whose gradients are summed over batches, in messages of this format.
[[nodiscard]] SummedElements summed_elements_of(pmm::StepPlan const& step,
                                                std::vector<PlannedParameter> const& parameters,
                                                runtime::Wire wire);

/// Lists the arrays of training on batches, except the sampler's tables and lists of vertices. `batches.num_vertices`
/// must not exceed the graph's.
void plan_mini_batch_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                            NetworkSettings const& settings, OptimizerSettings const& optimizer,
                            BatchSizes const& batches);

/// Memory of the calling rank in mini-batch training.
template<class T>
[[nodiscard]] MemoryEstimate
estimate_mini_batch_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                           NetworkPlan const& plan, NetworkSettings const& settings,
                           OptimizerSettings const& optimizer, BatchSizes const& batches);

} // namespace orthant::models
