// SPDX-License-Identifier: Apache-2.0
#include "graph/text/name_table.hpp"

#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>

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

namespace {

using Counts = std::vector<std::int64_t>;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}
std::int64_t sum(Counts const& counts) {
  return std::reduce(counts.begin(), counts.end());
}

/// Names to be sent, in the order of the ranks that receive them.
struct Parcels {
  NameList names;
  Counts num_names; // by rank
  Counts num_bytes;
};

/// Sends the parcels of all ranks. Returns those that this rank receives. Collective.
Parcels exchanged(runtime::Communicator const& comm, Parcels const& sent) {
  auto const num_ranks = at(comm.size());
  Counts headers(2 * num_ranks);
  Counts arrived(2 * num_ranks);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    headers[2 * rank] = sent.num_names[rank];
    headers[2 * rank + 1] = sent.num_bytes[rank];
  }
  runtime::all_to_all(runtime::host, comm, headers, arrived);
  Parcels got{{}, Counts(num_ranks), Counts(num_ranks)};
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    got.num_names[rank] = arrived[2 * rank];
    got.num_bytes[rank] = arrived[2 * rank + 1];
  }
  std::vector<std::int32_t> lengths(at(sent.names.size()));
  for (std::size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = static_cast<std::int32_t>(sent.names.offsets[i + 1] - sent.names.offsets[i]);
  std::vector<std::int32_t> got_lengths(at(sum(got.num_names)));
  runtime::all_to_allv(runtime::host, comm, lengths, sent.num_names, got_lengths, got.num_names);
  got.names.text.resize(at(sum(got.num_bytes)));
  auto const bytes_of = [](std::string const& text) { return std::as_bytes(std::span(text)); };
  runtime::all_to_allv(runtime::host, comm, bytes_of(sent.names.text), sent.num_bytes,
                       std::as_writable_bytes(std::span(got.names.text)), got.num_bytes);
  got.names.offsets.reserve(got_lengths.size() + 1);
  for (auto const length : got_lengths)
    got.names.offsets.push_back(got.names.offsets.back() + length);
  return got;
}

/// Puts the names in the order of their owners. Sets `order` to the number of each in `mine`.
Parcels sorted_by_owner(NameList const& mine, std::size_t num_ranks, Counts& order) {
  std::vector<std::uint32_t> owners(at(mine.size()));
  Parcels parcels{{}, Counts(num_ranks), Counts(num_ranks)};
  for (std::size_t i = 0; i < owners.size(); ++i) {
    auto const name = mine[static_cast<std::int64_t>(i)];
    // The owner's table chooses slots by the same hash as this function chooses owners. The multiplication makes the two independent, so
    // that the names of one owner do not collide.
    constexpr std::uint64_t golden = 0x9E3779B97F4A7C15;
    owners[i] = static_cast<std::uint32_t>((NameTable::hash_of(name) * golden >> 32) % num_ranks);
    ++parcels.num_names[owners[i]];
    parcels.num_bytes[owners[i]] += std::ssize(name);
  }
  Counts starts(num_ranks);
  std::exclusive_scan(parcels.num_names.begin(), parcels.num_names.end(), starts.begin(), std::int64_t{0});
  order.resize(owners.size());
  for (std::size_t i = 0; i < owners.size(); ++i)
    order[at(starts[owners[i]]++)] = static_cast<std::int64_t>(i);
  parcels.names.text.reserve(mine.text.size());
  parcels.names.offsets.reserve(owners.size() + 1);
  for (auto const i : order)
    parcels.names.add(mine[i]);
  return parcels;
}

/// Gathers the marked names of all ranks on rank 0, in the order of the ranks. Collective.
NameList gathered(runtime::Communicator const& comm, NameList const& mine, std::vector<bool> const& marked) {
  Parcels parcels{{}, Counts(at(comm.size())), Counts(at(comm.size()))};
  for (std::size_t i = 0; i < marked.size(); ++i)
    if (marked[i]) parcels.names.add(mine[static_cast<std::int64_t>(i)]);
  parcels.num_names[0] = parcels.names.size();
  parcels.num_bytes[0] = std::ssize(parcels.names.text);
  return exchanged(comm, parcels).names;
}

} // namespace

NumberedNames number_names(runtime::Communicator const& comm, NameList mine) {
  NumberedNames result;
  auto& ids = result.ids;
  ids.resize(at(mine.size()));
  if (comm.size() == 1) {
    std::iota(ids.begin(), ids.end(), std::int64_t{0});
    result.count = mine.size();
    result.all = std::move(mine);
    return result;
  }
  Counts order;
  auto sent = sorted_by_owner(mine, at(comm.size()), order);
  auto got = exchanged(comm, sent);
  sent.names = {};

  NameTable owned;
  Counts slots(at(got.names.size())); // index in `owned` of each received name
  Counts answers(slots.size());       // 1 if no earlier rank sent the same name
  for (std::size_t i = 0; i < slots.size(); ++i) {
    auto const count = owned.size();
    slots[i] = owned.find_or_add(got.names[static_cast<std::int64_t>(i)]);
    answers[i] = slots[i] == count ? 1 : 0;
  }
  got.names = {};
  Counts numbers(at(owned.size()));
  owned = {};
  Counts replies(order.size());
  runtime::all_to_allv(runtime::host, comm, answers, got.num_names, replies, sent.num_names);
  std::vector<bool> is_first(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    is_first[at(order[i])] = replies[i] == 1;

  // Each rank assigns numbers to the names for which it is the first rank.
  std::vector<std::int64_t> const num_first{std::count(is_first.begin(), is_first.end(), true)};
  Counts of_ranks(at(comm.size()));
  runtime::all_gather(runtime::host, comm, num_first, of_ranks);
  auto next = std::reduce(of_ranks.begin(), of_ranks.begin() + comm.rank());
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = is_first[i] ? next++ : -1;
  for (std::size_t i = 0; i < order.size(); ++i)
    replies[i] = ids[at(order[i])];
  runtime::all_to_allv(runtime::host, comm, replies, sent.num_names, answers, got.num_names);
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (answers[i] >= 0) numbers[at(slots[i])] = answers[i];
  for (std::size_t i = 0; i < slots.size(); ++i)
    answers[i] = numbers[at(slots[i])];
  runtime::all_to_allv(runtime::host, comm, answers, got.num_names, replies, sent.num_names);
  for (std::size_t i = 0; i < order.size(); ++i)
    ids[at(order[i])] = replies[i];
  result.count = sum(of_ranks);
  result.all = gathered(comm, mine, is_first);
  return result;
}

} // namespace orthant::graph
