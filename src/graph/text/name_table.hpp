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
  /// Requests the memory that find_or_add will read.
  void prefetch(std::uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
  }

  [[nodiscard]] NameList const& names() const { return names_; }
  [[nodiscard]] std::int64_t size() const { return names_.size(); }

 private:
  void grow();

  NameList names_;
  std::vector<std::uint64_t> slots_; // a power of two; 0: free; at most half are in use
};

} // namespace orthant::graph
