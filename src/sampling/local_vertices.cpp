// SPDX-License-Identifier: Apache-2.0
#include "sampling/local_vertices.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <limits>

namespace orthant::sampling {
namespace {

/// Look-ups under way at once: about as many misses as a core has in flight.
constexpr std::size_t look_ahead = 16;

} // namespace

KeyTable::KeyTable(std::span<std::int64_t const> keys) {
  std::int64_t const most_narrow = std::numeric_limits<std::uint32_t>::max();
  bool const is_narrow = std::all_of(keys.begin(), keys.end(), [&](auto key) { return key <= most_narrow; });
  if (is_narrow)
    slots_ = filled<std::uint32_t>(keys);
  else
    slots_ = filled<std::uint64_t>(keys);
}

template<class Key>
KeyTable::Slots<Key> KeyTable::filled(std::span<std::int64_t const> keys) {
  ORTHANT_REQUIRE(keys.size() <= std::size_t{1} << 31, keys.size(), " vertices on one rank");
  if (keys.empty()) return {};
  Slots<Key> slots(2 * keys.size(), {0, -1});
  for (std::size_t i = 0; i < keys.size(); ++i) {
    auto slot = first_slot(static_cast<std::uint64_t>(keys[i]), slots.size());
    while (slots[slot].place >= 0)
      slot = slot + 1 == slots.size() ? 0 : slot + 1;
    slots[slot] = {static_cast<Key>(keys[i]), static_cast<std::int32_t>(i)};
  }
  return slots;
}

std::int64_t KeyTable::num_bytes() const {
  return std::visit(
      [](auto const& slots) { return static_cast<std::int64_t>(slots.size() * sizeof(slots[0])); }, slots_);
}

LocalVertices::LocalVertices(std::span<std::int64_t const> keys, std::vector<std::int64_t> original_ids,
                             std::vector<std::int64_t> other_positions)
    : table_(keys),
      original_ids_(std::move(original_ids)),
      other_positions_(std::move(other_positions)) {}

LocalVertices::LocalVertices(graph::GraphStore const& store, SamplingKeys const& keys, Order order,
                             Range range)
    : original_ids_(store.read_original_ids(order, range)),
      other_positions_(store.read_other_positions(order, range)) {
  table_ = KeyTable(keys.of(original_ids_));
}

void LocalVertices::find(BatchKeys const& keys, SampledVertices& found) {
  hits_.clear();
  std::size_t next = 0;
  for (std::size_t stratum = 0; stratum < keys.num_strata(); ++stratum) {
    auto const end = next + static_cast<std::size_t>(keys.stratum_sizes[stratum]);
    for (; next < end; ++next) {
      table_.prefetch(keys.keys[std::min(next + look_ahead, keys.keys.size() - 1)]);
      auto const position = table_.find(keys.keys[next]);
      if (position >= 0) hits_.push_back(static_cast<std::uint64_t>(position) << 8 | stratum);
    }
  }
  std::sort(hits_.begin(), hits_.end());

  found.positions.clear();
  found.strata.clear();
  found.original_ids.clear();
  found.other_positions.clear();
  for (auto const hit : hits_) {
    auto const position = hit >> 8;
    found.positions.push_back(static_cast<std::int32_t>(position));
    if (keys.num_strata() > 1) found.strata.push_back(static_cast<std::int8_t>(hit & 0xff));
    found.original_ids.push_back(original_ids_[position]);
    if (!other_positions_.empty()) found.other_positions.push_back(other_positions_[position]);
  }
}

std::int64_t LocalVertices::num_bytes() const {
  auto const num_ids = original_ids_.size() + other_positions_.size();
  return table_.num_bytes() + static_cast<std::int64_t>(num_ids * sizeof(std::int64_t));
}

} // namespace orthant::sampling
