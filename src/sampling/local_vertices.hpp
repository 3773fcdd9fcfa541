#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The vertices of one range of rows or columns, found by key: which of a batch lie here, and where. A batch
// costs one look-up a vertex of the batch, whatever the size of graph and range (key_table.hpp).

#include "graph/store/listed_block.hpp"
#include "runtime/range.hpp"
#include "sampling/key_table.hpp"
#include "sampling/sampler.hpp"

#include <cstdint>
#include <vector>

namespace orthant::sampling {

using graph::Order;
using runtime::Range;

/// The vertices of a batch that lie in a range, in the order of the range.
struct SampledVertices {
  std::vector<std::int32_t> positions;       // [n] ascending; places in the list of ranges
  std::vector<std::int8_t> strata;           // [n] groups of the batch; empty where there is one
  std::vector<std::int64_t> original_ids;    // [n] what random numbers are keyed by
  std::vector<std::int64_t> other_positions; // [n] in the other order, of all N; empty unless asked for
  std::vector<double>
      degrees; // [n] 1 + weights of the neighbours in the batch; empty unless edges are renormalized

  [[nodiscard]] std::size_t size() const { return positions.size(); }
};

class LocalVertices {
 public:
  /// Vertices whose keys are their original ids, by position.
  explicit LocalVertices(PackedIds const& original_ids) : table_(original_ids) {}
  /// Vertices with these keys and original ids, by position.
  LocalVertices(PackedIds const& keys, PackedIds original_ids)
      : table_(keys),
        original_ids_(std::move(original_ids)) {}

  [[nodiscard]] std::int64_t size() const { return table_.size(); }

  /// What find() gives as other_positions from now on: position in the other order by position.
  void set_other_positions(PackedIds other_positions) { other_positions_ = std::move(other_positions); }
  [[nodiscard]] bool has_other_positions() const { return !other_positions_.empty(); }

  /// Those of them that are in the batch. Cost: O(B) look-ups, and a sort of what is found.
  void find(BatchKeys const& keys, SampledVertices& found);

  /// Bytes held, without scratch.
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  KeyTable table_;
  PackedIds original_ids_;    // empty: the keys
  PackedIds other_positions_; // empty: nobody asks
  std::vector<std::uint64_t> hits_;
  std::vector<std::uint64_t> scratch_;
};

/// Original ids, and positions in the other order, of ranges of the store, one after the other. Not
/// collective, may throw: use together().
[[nodiscard]] PackedIds read_original_ids(graph::GraphStore const& store, Order order,
                                          graph::Ranges const& ranges);
[[nodiscard]] PackedIds read_other_positions(graph::GraphStore const& store, Order order,
                                             graph::Ranges const& ranges);

} // namespace orthant::sampling
