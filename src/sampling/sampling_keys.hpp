#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// From original ids to the keys that batches are lists of (sampler.hpp). For set-up.

#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/range.hpp"
#include "sampling/packed_ids.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::sampling {

class SamplingKeys {
 public:
  /// `num_strata`: 1, or 2 = the training vertices before the others. Two: every rank reads N/P of the split
  /// and holds N/P bits, one a vertex, by original id. `comm` must outlive this object. Collective.
  SamplingKeys(runtime::Communicator const& comm, graph::GraphStore const& store, std::size_t num_strata);

  [[nodiscard]] std::size_t num_strata() const { return num_strata_; }
  /// The keys of the vertices with these original ids, each once. Two strata: collective, every rank asks for
  /// ids of its own; the ranks pass round the bits of all vertices, `window` words of 64 at a time (8 MiB).
  [[nodiscard]] PackedIds of(PackedIds const& original_ids,
                             std::int64_t window = std::int64_t{1} << 20) const;
  /// Bytes held, and what a rank holds of two strata.
  [[nodiscard]] std::int64_t num_bytes() const {
    return static_cast<std::int64_t>(train_bits_.size() * sizeof(train_bits_[0]));
  }
  [[nodiscard]] static std::int64_t bytes(std::int64_t num_vertices, int num_ranks, int rank) {
    return 8 * runtime::balanced_range((num_vertices + 63) / 64, num_ranks, rank).size();
  }
  /// Keys below this are of stratum 0, the others of stratum 1.
  [[nodiscard]] std::int64_t stratum_1_begin() const { return stratum_1_begin_; }

 private:
  [[nodiscard]] std::int64_t num_words() const { return (num_vertices_ + 63) / 64; }
  /// This rank's words of train_bits_.
  [[nodiscard]] runtime::Range words_of(int rank) const;
  /// The words `wanted` of all ranks. Collective.
  [[nodiscard]] std::vector<std::int64_t> gather(runtime::Range wanted) const;

  runtime::Communicator const& comm_;
  std::int64_t num_vertices_;
  std::size_t num_strata_;
  std::int64_t stratum_1_begin_;
  std::vector<std::int64_t> train_bits_; // bit v % 64 of word v / 64: v trains. Two strata only
};

} // namespace orthant::sampling
