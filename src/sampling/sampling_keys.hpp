#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// From original ids to the keys that batches are lists of (sampler.hpp). For set-up.

#include "graph/store_reader.hpp"
#include "runtime/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::sampling {

class SamplingKeys {
 public:
  /// `num_strata`: 1, or 2 = the training vertices before the others. Two: every rank reads its share of the
  /// split, and an all_reduce of N/8 bytes makes the list of all training vertices, 2 bits a vertex while
  /// this object lives. Collective over `comm`.
  SamplingKeys(runtime::Communicator const& comm, graph::GraphStore const& store, std::size_t num_strata);

  /// The keys of the vertices with these original ids.
  [[nodiscard]] std::vector<std::int64_t> of(std::vector<std::int64_t> const& original_ids) const;
  /// Keys below this are of stratum 0, the others of stratum 1.
  [[nodiscard]] std::int64_t stratum_1_begin() const { return stratum_1_begin_; }

 private:
  std::int64_t stratum_1_begin_;
  std::vector<std::int64_t> train_bits_;    // [N/64] bit v % 64 of word v / 64; empty: one stratum
  std::vector<std::int64_t> trains_before_; // [N/64] training vertices of all words before
};

} // namespace orthant::sampling
