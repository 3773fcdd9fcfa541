#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Degrees within a batch, without a message: the neighbours of the vertices of a range by key, whole rows of A
// without self loops, and a bit a vertex of the graph that tells who is in the batch.
//
//   d_i = s + sum of w_ij over the j of the batch           w = 1 in a pattern; s = 1 if a self loop is added, else 0
//
// Memory: 4 bytes for each non-zero of the rows (8 above 2^32 vertices, 4 more with weights) and 8 a row. A rank
// of a grid that cuts rows in R and columns in C holds so nnz (1/R + 1/C) entries for each pair of ranges that
// its blocks have, where its blocks have nnz / (R C).

#include "graph/store/listed_block.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"
#include "sampling/packed_ids.hpp"
#include "sampling/sampling_keys.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace orthant::sampling {

/// Which keys are in the batch. N / 8 bytes; nothing of the size of the graph is ever cleared.
class KeyBits {
 public:
  KeyBits() = default;
  explicit KeyBits(std::int64_t num_vertices) : bits_(static_cast<std::size_t>((num_vertices + 63) / 64)) {}

  /// These keys, in place of those before.
  void set(std::span<std::int64_t const> keys) {
    for (auto const key : set_)
      bits_[static_cast<std::size_t>(key / 64)] = 0;
    set_.assign(keys.begin(), keys.end());
    for (auto const key : set_)
      bits_[static_cast<std::size_t>(key / 64)] |= std::uint64_t{1} << (key % 64);
  }
  [[nodiscard]] bool has(std::int64_t key) const {
    return (bits_[static_cast<std::size_t>(key / 64)] >> (key % 64) & 1U) != 0;
  }
  [[nodiscard]] std::int64_t num_bytes() const { return 8 * std::ssize(bits_); }

 private:
  std::vector<std::uint64_t> bits_;
  std::vector<std::int64_t> set_;
};

class NeighbourLists {
 public:
  NeighbourLists() = default;
  /// Of the vertices at these places of `order`. Reads their rows of A piece by piece of the columns. Collective
  /// over `comm`: every rank gives ranges of its own, maybe none.
  NeighbourLists(runtime::Communicator const& comm, graph::GraphStore const& store, SamplingKeys const& keys,
                 graph::Order order, graph::Ranges const& ranges);

  [[nodiscard]] bool empty() const { return offsets_.empty(); }
  /// degrees := d of the vertices at these places of the list of ranges. Cost: O(non-zeros of their rows).
  void find_degrees(std::span<std::int32_t const> places, KeyBits const& batch,
                    std::vector<double>& degrees) const;
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  double of_self_loop_ = 1;
  std::vector<std::int64_t> offsets_; // [places + 1]
  PackedIds keys_;                    // [non-zeros]
  std::vector<float> weights_;        // [non-zeros]; empty: a pattern
};

} // namespace orthant::sampling
