#pragma once
// SPDX-License-Identifier: Apache-2.0
//
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

#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"
#include "sampling/sampler.hpp"

#include <cstdint>
#include <vector>

namespace orthant::sampling {

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
