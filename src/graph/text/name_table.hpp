#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Names with numbers from 0 in the order in which they are added, found by hashing (open addressing with linear probing). The entry of a
// name holds its number, length and text. A slot holds the position of an entry and 24 bits of the hash, so a look-up usually reads memory
// at two positions only.

#include "graph/graph_source.hpp"
#include "runtime/comm/communicator.hpp"

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
  /// Returns the number of the name. A new name is appended. There must be fewer than 2^32 names.
  std::int64_t find_or_add(std::string_view name) { return find_or_add(name, hash_of(name)); }
  std::int64_t find_or_add(std::string_view name, std::uint64_t hash);

  // Requests the memory that find_or_add will read for a name: first its slot, then its text. Call prefetch_slot for many names, then
  // prefetch_text for all of them, then find_or_add.
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
      40; // bits of a position in `entries_` plus 1; the rest of a slot is from the hash
  static constexpr std::uint64_t place_mask = (std::uint64_t{1} << place_bits) - 1;

  void grow();

  std::vector<char> entries_; // per name: number and length, 32 bits each, then the text
  std::int64_t size_ = 0;
  std::vector<std::uint64_t> slots_; // length: a power of two; 0: free; at most half are in use
};

// Assigns numbers to names over all ranks, in the order of first appearance: first the names of rank 0, then those of rank 1, and so on.
// The hash of a name selects the rank that owns it. Every rank with this name sends it to the owner, which decides which rank has it first.
// Each rank sends each of its names once, so the cost does not depend on how often names occur.

struct NumberedNames {
  std::int64_t count = 0;        // number of distinct names on all ranks
  std::vector<std::int64_t> ids; // [names of this rank]
  NameList all;                  // on rank 0
};

/// Collective.
[[nodiscard]] NumberedNames number_names(runtime::Communicator const& comm, NameList mine);

} // namespace orthant::graph
