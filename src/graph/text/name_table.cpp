// SPDX-License-Identifier: Apache-2.0
#include "graph/text/name_table.hpp"

#include <algorithm>
#include <cstring>

namespace orthant::graph {

namespace {

struct Head {
  std::uint32_t number;
  std::uint32_t length;
};

Head head_at(char const* entry) {
  Head head{};
  std::memcpy(&head, entry, sizeof head);
  return head;
}
std::string_view text_at(char const* entry) {
  return {entry + sizeof(Head), head_at(entry).length};
}

} // namespace

std::int64_t NameTable::find_or_add(std::string_view name, std::uint64_t hash) {
  if (2 * static_cast<std::size_t>(size_ + 1) > slots_.size()) grow();
  auto const mask = slots_.size() - 1;
  auto const tag = hash & ~place_mask;
  auto slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    if ((slots_[slot] & ~place_mask) != tag) continue;
    auto const* const entry = entries_.data() + (slots_[slot] & place_mask) - 1;
    if (text_at(entry) == name) return head_at(entry).number;
  }
  slots_[slot] = tag | (entries_.size() + 1);
  Head const head{static_cast<std::uint32_t>(size_), static_cast<std::uint32_t>(name.size())};
  auto const* const bytes = reinterpret_cast<char const*>(&head);
  entries_.insert(entries_.end(), bytes, bytes + sizeof head);
  entries_.insert(entries_.end(), name.begin(), name.end());
  return size_++;
}

void NameTable::grow() {
  constexpr std::size_t fewest = 1024;
  slots_.assign(std::max(fewest, 2 * slots_.size()), 0);
  auto const mask = slots_.size() - 1;
  for (std::size_t place = 0; place < entries_.size();) {
    auto const name = text_at(entries_.data() + place);
    auto const hash = hash_of(name);
    auto slot = hash & mask;
    while (slots_[slot] != 0)
      slot = (slot + 1) & mask;
    slots_[slot] = (hash & ~place_mask) | (place + 1);
    place += sizeof(Head) + name.size();
  }
}

NameList NameTable::names() const {
  NameList list;
  list.offsets.reserve(static_cast<std::size_t>(size_) + 1);
  list.text.reserve(entries_.size() - static_cast<std::size_t>(size_) * sizeof(Head));
  for (std::size_t place = 0; place < entries_.size();) {
    auto const name = text_at(entries_.data() + place);
    list.add(name);
    place += sizeof(Head) + name.size();
  }
  return list;
}

} // namespace orthant::graph
