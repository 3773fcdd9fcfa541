#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Samplers: an interface that selects the vertices of a batch.
//
// Vertices are numbered by *key*. The graph is partitioned into strata (often one), and the keys of stratum s are [N_0 + .. + N_{s-1}, N_0
// + .. + N_s), in the order of original ids. With one stratum the key is the original id. A batch is a set of keys that every rank can list
// without communication.
//
// An edge between two vertices of a batch is multiplied by m, so that the sampled aggregation is right on average: given that i is in the
// batch, sum_j m(g_i, g_j) a_ij x_j over the j of the batch has the mean sum_j a_ij x_j. Because m depends only on the groups of the two
// vertices, a sampled block can be a pattern. Groups are strata, or the clusters of a batch. A sampler that draws neighbors by layer would
// need several sets.
//
// In a step s of Gd groups that accumulate K batches each, the k-th batch of group g is number (s K + k) Gd + g: a data axis of size Gd is
// equivalent to one group that accumulates Gd batches.

#include "runtime/numbers/random.hpp"
#include "runtime/range.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace orthant::sampling {

/// How the edges of a batch are weighted.
enum class BatchEdges : std::uint8_t {
  rescale,     // edges of A^ times m: the mean of A~ over batches is A^
  renormalize, // A^ of the induced subgraph with its own degrees, as in PyG and
               // Cluster-GCN: less variance, but the mean over batches is not A^
  relations, // means over the neighbors of each relation in the batch, as in PyG: entries with relations and with c_ir of the batch
};

/// The property of a vertex that determines its stratum.
struct Strata {
  enum class By : std::uint8_t { nothing, training, degree, cluster };
  By by = By::nothing; // nothing: one stratum. training: training vertices, and the others
  std::vector<std::int64_t> degree_bounds; // by degree: stratum s has degrees in [bounds[s], bounds[s + 1])
};

/// Vertices of a batch from one stratum or cluster: the keys k_p, p in `places`, where
///
///   k_p = keys.begin + order(p)        or keys.begin + p, without an order
struct BatchPart {
  runtime::Range keys; // of all vertices of the stratum or cluster
  runtime::Range places;
  std::optional<runtime::KeyedBijection> order;
};

/// The vertices of one batch. The arrays are reused for the next batch, so only the first one allocates.
struct BatchKeys {
  std::vector<BatchPart> parts;            // with several groups, one part each
  std::vector<std::int64_t> keys;          // [size()] each once; those of the first part first
  std::vector<std::int64_t> stratum_sizes; // [num_strata] vertices of each group in the batch: b_s
  std::vector<double> factors;             // [num_strata x num_strata] m(a, b), row-major
  /// [num_strata] weight of the loss of a training vertex of each group. With it, the mean over a batch is on average the mean over the
  /// graph. Empty if all vertices are equally often in a batch.
  std::vector<double> loss_weights;

  [[nodiscard]] std::int64_t size() const;
  [[nodiscard]] std::size_t num_strata() const { return stratum_sizes.size(); }
};

class Sampler {
 public:
  Sampler(std::int64_t num_groups, std::int64_t num_accumulated);
  Sampler(Sampler const&) = delete;
  Sampler& operator=(Sampler const&) = delete;
  virtual ~Sampler() = default;

  /// The rule for the strata of the graph, and the number of vertices in each: N_s.
  [[nodiscard]] virtual Strata strata() const = 0;
  [[nodiscard]] virtual std::vector<std::int64_t> const& stratum_sizes() const = 0;
  /// True if m(a, b) = m(b, a) in all batches.
  [[nodiscard]] virtual bool has_symmetric_factors() const = 0;
  /// Number of batches of an epoch, a multiple of Gd K.
  [[nodiscard]] virtual std::int64_t num_batches() const = 0;
  /// Describes batch `batch` of an epoch, 0 <= batch < num_batches(): everything of `batch_keys` but the list of keys, which is cleared. A
  /// pure function of its arguments: any rank and any thread may call it, at any time and in any order. Cost: O(parts).
  void describe(std::int64_t epoch, std::int64_t batch, BatchKeys& batch_keys) const;
  /// Describes the batch and lists its keys. Cost: O(|S|).
  void draw(std::int64_t epoch, std::int64_t batch, BatchKeys& batch_keys) const;

  /// Number of steps of an epoch: num_batches() / (Gd K).
  [[nodiscard]] std::int64_t num_steps() const { return num_batches() / step_batches_; }
  /// The batch of a group in a step, as number `accumulated` of its K batches.
  [[nodiscard]] std::int64_t batch_of(std::int64_t step, std::int64_t group,
                                      std::int64_t accumulated = 0) const {
    return (step * num_accumulated_ + accumulated) * num_groups_ + group;
  }

 protected:
  /// describe() after the arguments are checked and the arrays are cleared.
  virtual void describe_batch(std::int64_t epoch, std::int64_t batch, BatchKeys& batch_keys) const = 0;
  /// `num_wanted` batches of an epoch, rounded up to whole steps. Throws UserError if some groups have no work, or if the result exceeds
  /// the `num_shared` vertices or clusters (`what`) that the batches share.
  [[nodiscard]] std::int64_t count_batches(std::int64_t num_wanted, std::int64_t batch_size,
                                           std::int64_t num_shared, std::string_view what) const;
  /// Gd K.
  [[nodiscard]] std::int64_t step_batches() const { return step_batches_; }

 private:
  std::int64_t num_groups_;
  std::int64_t num_accumulated_;
  std::int64_t step_batches_;
};

/// ceil(dividend / divisor)
[[nodiscard]] constexpr std::int64_t divided_up(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

/// m(a, b) if num_sampled of the num_vertices vertices of the neighbor's stratum are drawn uniformly. 0 if the batch cannot have such an
/// edge.
[[nodiscard]] double edge_factor(std::int64_t num_vertices, std::int64_t num_sampled, bool is_same_stratum);

/// Throws UserError unless 2 <= batch_size <= num_vertices and num_train is positive.
void require_batch_size(std::int64_t batch_size, std::int64_t num_vertices, std::int64_t num_train);

} // namespace orthant::sampling
