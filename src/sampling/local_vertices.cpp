// SPDX-License-Identifier: Apache-2.0
#include "sampling/local_vertices.hpp"

namespace orthant::sampling {

void LocalVertices::find(BatchKeys const& keys, SampledVertices& found) {
  table_.find_all(keys.keys, hits_, scratch_);

  found.positions.clear();
  found.strata.clear();
  found.original_ids.clear();
  found.other_positions.clear();
  for (auto const hit : hits_) {
    auto const position = hit >> 32;
    auto const number = hit & 0xffff'ffff; // in the batch
    found.positions.push_back(static_cast<std::int32_t>(position));
    found.original_ids.push_back(original_ids_.empty() ? keys.keys[number] : original_ids_[position]);
    if (has_other_positions()) found.other_positions.push_back(other_positions_[position]);
    if (keys.num_strata() == 1) continue;
    auto const is_of_first = static_cast<std::int64_t>(number) < keys.stratum_sizes[0];
    found.strata.push_back(is_of_first ? std::int8_t{0} : std::int8_t{1});
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
