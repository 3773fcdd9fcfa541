#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Batches of whole clusters of the store (`orthant partition --clusters K`), which keep most of their edges
// (Cluster-GCN, arXiv 1905.07953). A keyed bijection puts the K clusters of an epoch in a random order, and
// batch t is part t of T balanced parts of it, T = ceil(N / B) rounded up to whole steps. So every vertex is in
// one batch of the epoch. Clusters differ in size, and so do batches; B is their mean. O(|S|) a batch.
//
// A group is a cluster of the batch, q of them. Given that i is in, a cluster that is not its own is with
// probability (q - 1) / (K - 1):
//
//   m(a, a) = 1          m(a, b) = (K - 1) / (q - 1)   (a != b)
//
// With q = 1 no edge between clusters is ever seen, which no factor makes up for: a batch to be rescaled has at
// least two clusters, unless K = 1.

#include "runtime/range.hpp"
#include "sampling/sampler.hpp"

#include <cstdint>
#include <vector>

namespace orthant::sampling {

/// Groups of a batch have 8 bits.
inline constexpr std::int64_t most_rescaled_clusters = 127;

struct ClusterSamplerOptions {
  std::uint64_t seed = 0;
  std::int64_t batch_size = 0;      // B, on average
  std::int64_t num_groups = 1;      // Gd
  std::int64_t num_accumulated = 1; // K
  BatchEdges edges = BatchEdges::renormalize;
};

class ClusterSampler final : public Sampler {
 public:
  /// Of clusters with so many vertices each, `num_train` training vertices in all. Throws UserError as
  /// VertexSampler does, if there are more batches than clusters that have vertices, and, if edges are rescaled,
  /// if a batch has fewer than 2 or more than 127 clusters.
  ClusterSampler(ClusterSamplerOptions const& options, std::vector<std::int64_t> cluster_sizes,
                 std::int64_t num_train);

  [[nodiscard]] Strata strata() const override { return {Strata::By::cluster, {}}; }
  [[nodiscard]] std::vector<std::int64_t> const& stratum_sizes() const override { return cluster_sizes_; }
  [[nodiscard]] bool has_symmetric_factors() const override { return true; }
  [[nodiscard]] std::int64_t num_batches() const override { return num_batches_; }
  void draw(std::int64_t epoch, std::int64_t batch, BatchKeys& keys) const override;

 private:
  std::uint64_t seed_;
  BatchEdges edges_;
  std::vector<std::int64_t> cluster_sizes_;
  std::vector<runtime::Range> cluster_keys_; // of the clusters that have vertices
  std::int64_t num_batches_ = 0;
};

} // namespace orthant::sampling
