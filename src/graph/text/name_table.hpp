#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Names with numbers from 0 in the order in which they are added, found by hashing (open addressing with linear probing). A slot has 24 bits
// of the hash beside the number, so that the text of another name is hardly ever read.

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
  /// The number of the name, which is appended if it is new.
  std::int64_t find_or_add(std::string_view name) { return find_or_add(name, hash_of(name)); }
  std::int64_t find_or_add(std::string_view name, std::uint64_t hash);
  // Requests the memory that find_or_add will read for a name: first its slot, then its place in the list, and then its text. Call each for
  // many names before the next one.
  void prefetch_slot(std::uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
  }
  void prefetch_place(std::uint64_t hash) const {
    if (auto const number = likely_number(hash); number >= 0)
      __builtin_prefetch(&names_.offsets[static_cast<std::size_t>(number)]);
  }
  void prefetch_text(std::uint64_t hash) const {
    if (auto const number = likely_number(hash); number >= 0)
      __builtin_prefetch(names_.text.data() + names_.offsets[static_cast<std::size_t>(number)]);
  }

  [[nodiscard]] NameList const& names() const { return names_; }
  [[nodiscard]] std::int64_t size() const { return names_.size(); }

 private:
  static constexpr int number_bits =
      40; // of a number plus 1 in a slot; the other bits are the first ones of the hash
  static constexpr std::uint64_t number_mask = (std::uint64_t{1} << number_bits) - 1;

  /// The number in the first slot of the hash if it fits, or -1.
  [[nodiscard]] std::ptrdiff_t likely_number(std::uint64_t hash) const {
    auto const slot = slots_.empty() ? 0 : slots_[hash & (slots_.size() - 1)];
    bool const fits = slot != 0 && ((slot ^ hash) & ~number_mask) == 0;
    return fits ? static_cast<std::ptrdiff_t>(slot & number_mask) - 1 : -1;
  }
  void grow();

  NameList names_;
  std::vector<std::uint64_t> slots_; // a power of two; 0: free; at most half are in use
};

} // namespace orthant::graph
