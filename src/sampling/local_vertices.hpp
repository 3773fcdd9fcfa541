#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The vertices of one range of rows or columns, found by key: which of a batch lie here, and where.
//
// A range of an order holds vertices with any keys, so there is a table from key to position for the vertices
// of the range alone (open addressing with linear probing, half full: 16 bytes a local vertex where keys fit
// in 32 bits). A batch costs one look-up a vertex of the batch, whatever the size of graph and range.

#include "graph/store_reader.hpp"
#include "runtime/philox.hpp"
#include "runtime/range.hpp"
#include "sampling/sampler.hpp"
#include "sampling/sampling_keys.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <variant>
#include <vector>

namespace orthant::sampling {

using graph::Order;
using runtime::Range;

/// From a key to its place in a list.
class KeyTable {
 public:
  KeyTable() = default;
  /// keys[i] >= 0, each once, at most 2^31 of them.
  explicit KeyTable(std::span<std::int64_t const> keys);

  /// The i with keys[i] == key, or -1.
  [[nodiscard]] std::int32_t find(std::int64_t key) const {
    return std::visit([&](auto const& slots) { return find_in(slots, key); }, slots_);
  }
  /// Begins to load what find(key) will read: it is in no cache where the range is large.
  void prefetch(std::int64_t key) const {
    std::visit(
        [&](auto const& slots) {
          __builtin_prefetch(slots.data() + first_slot(static_cast<std::uint64_t>(key), slots.size()));
        },
        slots_);
  }
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  template<class Key>
  struct Slot {
    Key key;
    std::int32_t place; // -1: empty
  };
  template<class Key>
  using Slots = std::vector<Slot<Key>>;

  /// Where the search for a key begins. Multiplication by 2^64 / golden ratio spreads runs of keys evenly.
  [[nodiscard]] static std::size_t first_slot(std::uint64_t key, std::size_t num_slots) {
    return static_cast<std::size_t>(runtime::multiply_high(key * 0x9E3779B97F4A7C15u, num_slots));
  }
  template<class Key>
  [[nodiscard]] static Slots<Key> filled(std::span<std::int64_t const> keys);
  template<class Key>
  [[nodiscard]] static std::int32_t find_in(Slots<Key> const& slots, std::int64_t key) {
    if (slots.empty() || static_cast<std::uint64_t>(key) > std::numeric_limits<Key>::max()) return -1;
    auto slot = first_slot(static_cast<std::uint64_t>(key), slots.size());
    while (slots[slot].place >= 0 && slots[slot].key != static_cast<Key>(key))
      slot = slot + 1 == slots.size() ? 0 : slot + 1;
    return slots[slot].place;
  }

  std::variant<Slots<std::uint32_t>, Slots<std::uint64_t>> slots_;
};

/// The vertices of a batch that lie in a range, in the order of the range.
struct SampledVertices {
  std::vector<std::int32_t> positions;       // [n] ascending; position in the order minus range.begin
  std::vector<std::int8_t> strata;           // [n]; empty where there is one stratum
  std::vector<std::int64_t> original_ids;    // [n] what random numbers are keyed by
  std::vector<std::int64_t> other_positions; // [n] in the other order, of all N

  [[nodiscard]] std::size_t size() const { return positions.size(); }
};

class LocalVertices {
 public:
  /// Vertices with these keys, original ids and (or empty) positions in the other order, by position.
  LocalVertices(std::span<std::int64_t const> keys, std::vector<std::int64_t> original_ids,
                std::vector<std::int64_t> other_positions);
  /// Those of a range of the store. Not collective, may throw: use together().
  LocalVertices(graph::GraphStore const& store, SamplingKeys const& keys, Order order, Range range);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(original_ids_.size()); }

  /// Those of them that are in the batch. Cost: O(B) look-ups, and a sort of what is found.
  void find(BatchKeys const& keys, SampledVertices& found);

  /// Bytes held.
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  KeyTable table_;
  std::vector<std::int64_t> original_ids_;
  std::vector<std::int64_t> other_positions_;
  std::vector<std::uint64_t> hits_; // position << 8 | stratum
};

} // namespace orthant::sampling
