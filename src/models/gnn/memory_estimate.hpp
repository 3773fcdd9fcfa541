#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a rank will need, from layouts and counts alone, before anything is read; and what it has taken.

#include "models/gnn/gcn.hpp"
#include "models/training/optimizer.hpp"

#include <cstdint>

namespace orthant::models {

/// Bytes a rank by what holds them.
struct MemoryEstimate {
  std::int64_t adjacency = 0;
  std::int64_t features = 0;
  std::int64_t activations = 0;
  std::int64_t parameters = 0; // weights, gradients, moments, gathered copies
  std::int64_t targets = 0;    // labels, masks, ids, buffers of the loss
  std::int64_t loading = 0;    // the most that is held while the store is read, what training keeps included
  std::int64_t messages = 0;   // MPI's copies of what is under way
  std::int64_t libraries = 0;  // what BLAS, MPI and HDF5 take on first use

  /// What training keeps in arrays: on a device all that is in its memory, without libraries.
  [[nodiscard]] std::int64_t arrays() const;
  /// The most there will ever be.
  [[nodiscard]] std::int64_t peak() const;
};

/// For the rank of `grid` that calls, assuming that non-zeros fall evenly on blocks. T is the scalar of
/// training. Small objects (about 100 KiB) are not counted. Residuals on several ranks: a rank may send up to
/// a half more or less than the average, since it is one of several replicas.
template<class T>
[[nodiscard]] MemoryEstimate estimate_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                                             GcnPlan const& plan, GcnSettings const& settings,
                                             OptimizerSettings const& optimizer);

/// The same for training on batches: what is sure to be held, without batches that wait. `has_full_graph`
/// tells whether the whole graph is evaluated or trained on, too; otherwise only its features, the parameters
/// and the sampler's blocks of A^ count, and a batch's activations.
template<class T>
[[nodiscard]] MemoryEstimate
estimate_mini_batch_memory(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts, GcnPlan const& plan,
                           GcnSettings const& settings, OptimizerSettings const& optimizer,
                           std::int64_t batch_size, bool has_full_graph);

} // namespace orthant::models
