#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Uniform vertex sampling without communication (ScaleGNN, arXiv 2604.02651), O(B) per batch. A keyed bijection puts the vertices of an
// epoch in a random order that is never stored, and each batch is a part of it.
//
// One stratum: T = ceil(N / B), rounded up to a multiple of Gd K (the batches of a step). Batch t is part t of T balanced parts, so that
// sizes differ by at most one and every vertex is in one batch of the epoch. Given that i is in a batch S, the probability of any other
// vertex to be in S is (|S| - 1) / (N - 1):
//
//   m = (N - 1) / (|S| - 1)                                      with the actual |S|
//
// Two strata (train_fraction F): stratum 0 contains the training vertices, and stratum 1 the others, each in an order of its own. A batch
// has F B training vertices: T = ceil(N_0 / (F B)), rounded up. An epoch has every training vertex once. The other (1 - F) B vertices of a
// batch are consecutive in the order of the others. If an epoch needs more of them than exist, a new order with another key begins at the
// end of a step, or at the end of a batch if one step needs more than all of them. No batch has a vertex twice, and no vertex is repeated
// before a new order begins.
//
//   m(a, b) = N_b / b_b  (a != b),   (N_b - 1) / (b_b - 1)  (a = b)     b_s of stratum s in this batch

#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/numbers/random.hpp"
#include "runtime/range.hpp"
#include "sampling/sampler.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::sampling {

struct VertexSamplerOptions {
  std::uint64_t seed = 0;
  std::int64_t batch_size = 0;          // B, vertices per group and batch
  std::int64_t num_groups = 1;          // Gd
  std::int64_t num_accumulated = 1;     // K
  std::optional<double> train_fraction; // F
};

class VertexSampler final : public Sampler {
 public:
  /// Samples a graph of `num_vertices` vertices, of which `num_train` are in the training split. Throws UserError if a batch is smaller
  /// than 2 or larger than the graph, if no vertex trains, if there are fewer batches than groups, if F is not inside (0, 1), or if a batch
  /// needs more vertices of a stratum than exist.
  VertexSampler(VertexSamplerOptions const& options, std::int64_t num_vertices, std::int64_t num_train);

  [[nodiscard]] Strata strata() const override {
    return {stratum_sizes_.size() == 1 ? Strata::By::nothing : Strata::By::training, {}};
  }
  [[nodiscard]] std::vector<std::int64_t> const& stratum_sizes() const override { return stratum_sizes_; }
  /// With two strata, m(a, b) depends on the neighbor's stratum.
  [[nodiscard]] bool has_symmetric_factors() const override { return stratum_sizes_.size() == 1; }
  [[nodiscard]] std::int64_t num_batches() const override { return num_batches_; }

 private:
  void describe_batch(std::int64_t epoch, std::int64_t batch, BatchKeys& batch_keys) const override;
  void choose_strata(VertexSamplerOptions const& options, std::int64_t num_train);
  /// The order of stratum s in `epoch`; `round` counts its orders in the epoch.
  [[nodiscard]] runtime::KeyedBijection order_of(std::size_t stratum, std::int64_t epoch,
                                                 std::int64_t round) const;

  std::uint64_t seed_;
  std::int64_t num_batches_ = 0;
  std::vector<std::int64_t> stratum_sizes_;
  std::int64_t num_others_a_batch_ = 0;  // with two strata
  std::int64_t num_batches_a_round_ = 0; // batches per order of the other vertices
};

// Batches of whole clusters of the store (`orthant partition --clusters K`), which keep most of their edges (Cluster-GCN, arXiv
// 1905.07953). A keyed bijection puts the K clusters of an epoch in a random order. Batch t is part t of T balanced parts of it, T = ceil(N
// / B) rounded up to whole steps, so that every vertex is in one batch of the epoch. Clusters, and therefore batches, differ in size; B is
// the mean size of a batch. Cost: O(|S|) per batch.
//
// The groups of a batch are its q clusters. Given that i is in the batch, the probability of another cluster to be in it is (q - 1) / (K -
// 1):
//
//   m(a, a) = 1          m(a, b) = (K - 1) / (q - 1)   (a != b)
//
// With q = 1, edges between clusters never occur, and no factor can compensate for that: if edges are rescaled, a batch must have at least
// two clusters, unless K = 1.

/// The number of a group in a batch has 8 bits.
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
  /// `cluster_sizes` are the numbers of vertices of the clusters; `num_train` is the total number of training vertices. Throws UserError if
  /// a batch is smaller than 2 or larger than the graph, if no vertex trains, or if there are more batches than clusters with vertices.
  /// With rescaled edges also throws UserError if a batch has fewer than 2 or more than 127 clusters.
  ClusterSampler(ClusterSamplerOptions const& options, std::vector<std::int64_t> cluster_sizes,
                 std::int64_t num_train);

  [[nodiscard]] Strata strata() const override { return {Strata::By::cluster, {}}; }
  [[nodiscard]] std::vector<std::int64_t> const& stratum_sizes() const override { return cluster_sizes_; }
  [[nodiscard]] bool has_symmetric_factors() const override { return true; }
  [[nodiscard]] std::int64_t num_batches() const override { return num_batches_; }

 private:
  void describe_batch(std::int64_t epoch, std::int64_t batch, BatchKeys& batch_keys) const override;
  std::uint64_t seed_;
  BatchEdges edges_;
  std::vector<std::int64_t> cluster_sizes_;
  std::vector<runtime::Range> cluster_keys_; // of the clusters with vertices
  std::int64_t num_batches_ = 0;
};

// Draws vertices with probability by degree, O(B) per batch. Strata are ranges of degrees, each a factor of 2 wide or several of these
// together. A batch has b_s vertices of stratum s, drawn in the same way as VertexSampler draws non-training vertices:
//
//   b_s = B w_s / sum_s w_s     w_s = sum of degree + 1 over the stratum     (at most N_s, at least 2)
//
// The probability that a vertex is in a batch is therefore proportional to its degree within a factor of 2. A whole stratum may be in every
// batch, for example the hubs. Edges and losses are corrected for these probabilities, so that both are right on average:
//
//   m(a, b) = N_b / b_b  (a != b),   (N_b - 1) / (b_b - 1)  (a = b)          loss of a vertex: N_s |S| / (b_s N)
//
// An epoch has T = ceil(N / B) batches, rounded up to whole steps. It contains hubs often, and only a part of the vertices of small degree.
// Degrees count the entries in the rows of A; in directed graphs these are incoming edges.

struct DegreeSamplerOptions {
  std::uint64_t seed = 0;
  std::int64_t batch_size = 0;      // B; a batch may have a few less
  std::int64_t num_groups = 1;      // Gd
  std::int64_t num_accumulated = 1; // K
};

/// Numbers of vertices by powers of 2 of the degree: class 0 has degree 0, and class c > 0 has degrees [2^(c-1), 2^c).
struct DegreeClasses {
  std::vector<std::int64_t> counts;  // [classes] numbers of vertices
  std::vector<std::int64_t> weights; // [classes] sums of degree + 1
};
/// Counts the store's vertices by degree class. Collective.
[[nodiscard]] DegreeClasses count_degrees(runtime::Communicator const& comm, graph::GraphStore const& store);

class DegreeSampler final : public Sampler {
 public:
  /// Throws UserError if a batch is smaller than 2 or larger than the graph, if no vertex trains, or if some groups have no work.
  DegreeSampler(DegreeSamplerOptions const& options, DegreeClasses const& classes, std::int64_t num_train);

  [[nodiscard]] Strata strata() const override { return {Strata::By::degree, bounds_}; }
  [[nodiscard]] std::vector<std::int64_t> const& stratum_sizes() const override { return sizes_; }
  [[nodiscard]] bool has_symmetric_factors() const override { return sizes_.size() == 1; }
  [[nodiscard]] std::int64_t num_batches() const override { return num_batches_; }

  /// Number of vertices of each stratum in a batch: b_s.
  [[nodiscard]] std::vector<std::int64_t> const& num_drawn() const { return num_drawn_; }

 private:
  void describe_batch(std::int64_t epoch, std::int64_t batch, BatchKeys& batch_keys) const override;

  std::uint64_t seed_;
  std::vector<std::int64_t> bounds_; // [strata + 1] of degrees
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> num_drawn_;
  std::vector<std::int64_t> num_batches_a_round_; // batches per random order of the stratum
  std::vector<double> factors_;                   // equal in all batches
  std::vector<double> loss_weights_;
  std::int64_t num_batches_ = 0;
};

} // namespace orthant::sampling
