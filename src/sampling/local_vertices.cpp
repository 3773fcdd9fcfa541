// SPDX-License-Identifier: Apache-2.0
#include "sampling/local_vertices.hpp"

#include <algorithm>
#include <numeric>

namespace orthant::sampling {

void LocalVertices::find(BatchKeys const& keys, SampledVertices& found) {
  table_.find_all(keys.keys, hits_, scratch_);

  found.positions.clear();
  found.strata.clear();
  found.original_ids.clear();
  found.other_positions.clear();
  std::vector<std::uint64_t> ends(keys.num_strata()); // of the groups, in the batch
  std::partial_sum(keys.stratum_sizes.begin(), keys.stratum_sizes.end(), ends.begin());
  for (auto const hit : hits_) {
    auto const position = hit >> 32;
    auto const number = hit & 0xffff'ffff; // in the batch
    found.positions.push_back(static_cast<std::int32_t>(position));
    found.original_ids.push_back(original_ids_.empty() ? keys.keys[number] : original_ids_[position]);
    if (has_other_positions()) found.other_positions.push_back(other_positions_[position]);
    if (keys.num_strata() == 1) continue;
    found.strata.push_back(
        static_cast<std::int8_t>(std::upper_bound(ends.begin(), ends.end(), number) - ends.begin()));
  }
}

std::int64_t LocalVertices::num_bytes() const {
  return table_.num_bytes() + original_ids_.num_bytes() + other_positions_.num_bytes();
}

PackedIds read_original_ids(graph::GraphStore const& store, Order order, graph::Ranges const& ranges) {
  return read_packed(store.facts().num_vertices, ranges,
                     [&](Range piece) { return store.read_original_ids(order, piece); });
}

PackedIds read_other_positions(graph::GraphStore const& store, Order order, graph::Ranges const& ranges) {
  return read_packed(store.facts().num_vertices, ranges,
                     [&](Range piece) { return store.read_other_positions(order, piece); });
}

} // namespace orthant::sampling
