// SPDX-License-Identifier: Apache-2.0
#include "graph/text/name_table.hpp"

#include <algorithm>

namespace orthant::graph {

std::int64_t NameTable::find_or_add(std::string_view name, std::uint64_t hash) {
  if (2 * static_cast<std::size_t>(size() + 1) > slots_.size()) grow();
  auto const mask = slots_.size() - 1;
  auto const tag = hash & ~number_mask;
  auto slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    if ((slots_[slot] & ~number_mask) != tag) continue;
    auto const number = static_cast<std::int64_t>(slots_[slot] & number_mask) - 1;
    if (names_[number] == name) return number;
  }
  names_.add(name);
  slots_[slot] = tag | static_cast<std::uint64_t>(size());
  return size() - 1;
}

void NameTable::grow() {
  constexpr std::size_t fewest = 1024;
  slots_.assign(std::max(fewest, 2 * slots_.size()), 0);
  auto const mask = slots_.size() - 1;
  for (std::int64_t i = 0; i < size(); ++i) {
    auto const hash = hash_of(names_[i]);
    auto slot = hash & mask;
    while (slots_[slot] != 0)
      slot = (slot + 1) & mask;
    slots_[slot] = (hash & ~number_mask) | static_cast<std::uint64_t>(i + 1);
  }
}

} // namespace orthant::graph
