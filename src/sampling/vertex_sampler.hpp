#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Uniform vertex sampling without communication (ScaleGNN, arXiv 2604.02651), O(B) a batch: a keyed bijection
// puts the vertices of an epoch in a random order that is never stored, and batch t is a piece of it.
//
// One stratum. T = ceil(N / B), rounded up to a multiple of Gd K (the batches of a step); batch t is part t
// of T balanced parts, so sizes differ by at most one and every vertex is in one batch of the epoch. Given
// that i is in a batch S, any other vertex is with probability (|S| - 1) / (N - 1):
//
//   m = (N - 1) / (|S| - 1)                                      with the actual |S|
//
// Two strata (train_fraction F): 0 the training vertices, 1 the others, each in an order of its own.
// F B training vertices a batch: T = ceil(N_0 / (F B)), rounded up; an epoch has every training vertex once.
// The other (1 - F) B of a batch are consecutive in the others' order. Where an epoch needs more of them than
// there are, their order begins anew with a fresh key at the end of a step, or of a batch where one step
// takes more than all: no batch has a vertex twice, no vertex comes again before its order has begun anew.
//
//   m(a, b) = N_b / b_b  (a != b),   (N_b - 1) / (b_b - 1)  (a = b)     b_s of stratum s in this batch

#include "runtime/numbers/random.hpp"
#include "runtime/range.hpp"
#include "sampling/sampler.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::sampling {

struct VertexSamplerOptions {
  std::uint64_t seed = 0;
  std::int64_t batch_size = 0;          // B, vertices a group and batch
  std::int64_t num_groups = 1;          // Gd
  std::int64_t num_accumulated = 1;     // K
  std::optional<double> train_fraction; // F
};

class VertexSampler final : public Sampler {
 public:
  /// Of a graph of `num_vertices`, `num_train` of them in the training split. Throws UserError where a batch
  /// is smaller than 2 or larger than the graph, no vertex trains, there are fewer batches than groups, F is
  /// not inside (0, 1), or a batch wants more of a stratum than there are.
  VertexSampler(VertexSamplerOptions const& options, std::int64_t num_vertices, std::int64_t num_train);

  [[nodiscard]] Strata strata() const override {
    return {stratum_sizes_.size() == 1 ? Strata::By::nothing : Strata::By::training, {}};
  }
  [[nodiscard]] std::vector<std::int64_t> const& stratum_sizes() const override { return stratum_sizes_; }
  /// With two strata m(a, b) depends on that of the neighbour.
  [[nodiscard]] bool has_symmetric_factors() const override { return stratum_sizes_.size() == 1; }
  [[nodiscard]] std::int64_t num_batches() const override { return num_batches_; }
  void draw(std::int64_t epoch, std::int64_t batch, BatchKeys& keys) const override;

 private:
  void choose_strata(VertexSamplerOptions const& options, std::int64_t num_train);
  /// The order of stratum s in `epoch`, begun for time number `round`.
  [[nodiscard]] runtime::KeyedBijection order_of(std::size_t stratum, std::int64_t epoch,
                                                 std::int64_t round) const;

  std::uint64_t seed_;
  std::int64_t num_batches_ = 0;
  std::vector<std::int64_t> stratum_sizes_;
  std::int64_t num_others_a_batch_ = 0;  // two strata
  std::int64_t num_batches_a_round_ = 0; // batches that one order of the others serves
};

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
