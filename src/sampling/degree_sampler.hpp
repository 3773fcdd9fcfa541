#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Vertices with probability by degree, O(B) a batch. Strata are ranges of degrees, each a factor of 2 wide or
// some of those together, and a batch has b_s vertices of stratum s, drawn as VertexSampler draws those that do
// not train:
//
//   b_s = B w_s / sum_s w_s     w_s = sum of degree + 1 over the stratum     (at most N_s, at least 2)
//
// so a vertex is in a batch with a probability that is, within a factor of 2, in proportion to its degree. All
// of a stratum may be in every batch, as hubs are. Edges and losses are corrected by what is drawn, so both are
// right on average:
//
//   m(a, b) = N_b / b_b  (a != b),   (N_b - 1) / (b_b - 1)  (a = b)          loss of a vertex: N_s |S| / (b_s N)
//
// An epoch has T = ceil(N / B) batches, rounded up to whole steps. It has hubs often, and of vertices of small
// degree a part. Degrees are those of the rows of A, in directed graphs of edges that arrive.

#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"
#include "sampling/sampler.hpp"

#include <cstdint>
#include <vector>

namespace orthant::sampling {

struct DegreeSamplerOptions {
  std::uint64_t seed = 0;
  std::int64_t batch_size = 0;      // B, or some fewer
  std::int64_t num_groups = 1;      // Gd
  std::int64_t num_accumulated = 1; // K
};

/// The ranges of degrees, by powers of 2: class 0 has degree 0 and class c > 0 degrees [2^(c-1), 2^c).
struct DegreeClasses {
  std::vector<std::int64_t> counts;  // [classes] vertices
  std::vector<std::int64_t> weights; // [classes] sums of degree + 1
};
/// Collective.
[[nodiscard]] DegreeClasses count_degrees(runtime::Communicator const& comm, graph::GraphStore const& store);

class DegreeSampler final : public Sampler {
 public:
  /// Throws UserError as VertexSampler does.
  DegreeSampler(DegreeSamplerOptions const& options, DegreeClasses const& classes, std::int64_t num_train);

  [[nodiscard]] Strata strata() const override { return {Strata::By::degree, bounds_}; }
  [[nodiscard]] std::vector<std::int64_t> const& stratum_sizes() const override { return sizes_; }
  [[nodiscard]] bool has_symmetric_factors() const override { return sizes_.size() == 1; }
  [[nodiscard]] std::int64_t num_batches() const override { return num_batches_; }
  void draw(std::int64_t epoch, std::int64_t batch, BatchKeys& keys) const override;

  /// Vertices of each stratum in a batch: b_s.
  [[nodiscard]] std::vector<std::int64_t> const& num_drawn() const { return num_drawn_; }

 private:
  std::uint64_t seed_;
  std::vector<std::int64_t> bounds_; // [strata + 1] of degrees
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> num_drawn_;
  std::vector<std::int64_t> num_batches_a_round_; // that one order of the stratum serves
  std::vector<double> factors_;                   // the same in all batches
  std::vector<double> loss_weights_;
  std::int64_t num_batches_ = 0;
};

} // namespace orthant::sampling
