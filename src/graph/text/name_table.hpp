#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Names with numbers from 0 in the order in which they are added, found by hashing (open addressing with linear probing). Number, length and
// text of a name are next to each other, and a slot has 24 bits of the hash beside their place, so that finding a name reads two places in
// memory.

#include "graph/graph_source.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace orthant::graph {

class NameTable {
 public:
  [[nodiscard]] static std::uint64_t hash_of(std::string_view name) {
    return std::hash<std::string_view>()(name);
  }
  /// The number of the name, which is appended if it is new. There must be fewer than 2^32 names.
  std::int64_t find_or_add(std::string_view name) { return find_or_add(name, hash_of(name)); }
  std::int64_t find_or_add(std::string_view name, std::uint64_t hash);

  // Requests the memory that find_or_add will read for a name: first its slot, then its text. Call each for many names before the next one.
  void prefetch_slot(std::uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
  }
  void prefetch_text(std::uint64_t hash) const {
    auto const slot = slots_.empty() ? 0 : slots_[hash & (slots_.size() - 1)];
    if (slot != 0 && ((slot ^ hash) & ~place_mask) == 0)
      __builtin_prefetch(entries_.data() + (slot & place_mask) - 1);
  }

  /// All names in the order of their numbers.
  [[nodiscard]] NameList names() const;
  [[nodiscard]] std::int64_t size() const { return size_; }

 private:
  static constexpr int place_bits =
      40; // of a place in `entries_` plus 1; the other bits of a slot are the first ones of the hash
  static constexpr std::uint64_t place_mask = (std::uint64_t{1} << place_bits) - 1;

  void grow();

  std::vector<char> entries_; // of each name: number and length, 32 bits each, then its text
  std::int64_t size_ = 0;
  std::vector<std::uint64_t> slots_; // a power of two; 0: free; at most half are in use
};

} // namespace orthant::graph
