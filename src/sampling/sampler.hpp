#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which vertices are in a batch: the one question that a way of sampling answers.
//
// Vertices are numbered by *key*: the graph is cut in strata (usually one), and the keys of stratum s are
// [N_0 + .. + N_{s-1}, N_0 + .. + N_s), in the order of original ids. With one stratum the key is the
// original id. A batch is a set of keys that every rank can list without asking another.
//
// An edge between two vertices of a batch counts m times, so that the sampled aggregation is right on
// average: given that i is in the batch, sum_j m(g_i, g_j) a_ij x_j over the j of the batch has the mean
// sum_j a_ij x_j. That m depends on the two strata only is what lets a sampled block be a pattern. A sampler
// that draws vertices with unequal probabilities (GraphSAINT) would list a factor a vertex instead; one that
// draws neighbours by layer would list several sets.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::sampling {

/// The vertices of one batch. Lists are used again: a batch after the first allocates nothing.
struct BatchKeys {
  std::vector<std::int64_t> keys;          // [size()] each once; those of stratum 0 first, then 1, ..
  std::vector<std::int64_t> stratum_sizes; // [num_strata] vertices of each in the batch: b_s
  std::vector<double> factors;             // [num_strata x num_strata] m(a, b), row-major

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(keys.size()); }
  [[nodiscard]] std::size_t num_strata() const { return stratum_sizes.size(); }
};

class Sampler {
 public:
  Sampler() = default;
  Sampler(Sampler const&) = delete;
  Sampler& operator=(Sampler const&) = delete;
  virtual ~Sampler() = default;

  /// Vertices of the graph in each stratum: N_s. Two strata are the training vertices and the others.
  [[nodiscard]] virtual std::vector<std::int64_t> const& stratum_sizes() const = 0;
  /// Batches of an epoch.
  [[nodiscard]] virtual std::int64_t num_batches() const = 0;
  /// Batch `batch` of an epoch, 0 <= batch < num_batches(). A pure function of its arguments: any rank and
  /// any thread, at any time, in any order.
  virtual void draw(std::int64_t epoch, std::int64_t batch, BatchKeys& keys) const = 0;
};

} // namespace orthant::sampling
