// SPDX-License-Identifier: Apache-2.0
#include "runtime/backends/two_level_all_to_all.hpp"

#include <cstring>
#include <utility>

namespace orthant::runtime::detail {

TwoLevelAllToAll::Lengths TwoLevelAllToAll::lengths(std::span<std::int64_t const> counts,
                                                    std::int64_t total) const {
  Lengths lengths;
  for (int r = 0; r < comm_.size(); ++r)
    lengths.push_back((counts.empty() ? total / comm_.size() : counts[index(r)]) * element_bytes_);
  return lengths;
}

void TwoLevelAllToAll::begin() {
  sent_ = lengths(call_.send_counts, call_.send_count);
  received_ = lengths(call_.receive_counts, call_.receive_count);
  auto const [num_nodes, per_node] = std::pair(shape_.num_nodes, shape_.per_node);
  if (call_.send_counts.empty()) { // all counts are equal
    counts_ = sent_;
    phase_ = Phase::collecting;
    collect();
    return;
  }
  counts_.resize(index(comm_.size()));
  for (int place = 0; place < per_node; ++place)
    for (int node = 0; node < num_nodes; ++node)
      counts_out_.push_back(sent_[rank_at(node, place)]);
  auto const num_bytes = static_cast<std::int64_t>(sizeof(std::int64_t)) * num_nodes;
  for (int place = 0; place < per_node; ++place) {
    auto* const from = counts_.data() + place * num_nodes;
    auto const* const to = counts_out_.data() + place * num_nodes;
    if (place == place_) {
      std::copy_n(to, num_nodes, from);
      continue;
    }
    receive(reinterpret_cast<std::byte*>(from), num_bytes, on_own_node(place));
    send(reinterpret_cast<std::byte const*>(to), num_bytes, on_own_node(place));
  }
}

bool TwoLevelAllToAll::advance(bool waits) {
  while (phase_ != Phase::over) {
    if (!are_over(waits)) return false;
    switch (phase_) {
    case Phase::counting:
      collect();
      phase_ = Phase::collecting;
      break;
    case Phase::collecting:
      send_to_nodes();
      put_own_node();
      phase_ = Phase::sending;
      break;
    default:
      phase_ = Phase::over;
    }
  }
  return true;
}

/// Sends each place of this node what goes to its ranks of all nodes, ordered by node.
void TwoLevelAllToAll::collect() {
  auto const begins = begins_of(sent_);
  auto const collected_begins = begins_of(counts_);
  auto* into = scratch(outgoing, begins.back());
  auto* const from = scratch(collected, collected_begins.back());
  for (int place = 0; place < shape_.per_node; ++place) {
    auto const* const message = into;
    for (int node = 0; node < shape_.num_nodes; ++node) {
      auto const rank = rank_at(node, place);
      if (sent_[rank] == 0) continue;
      std::memcpy(into, static_cast<std::byte const*>(call_.send) + begins[rank],
                  static_cast<std::size_t>(sent_[rank]));
      into += sent_[rank];
    }
    auto const first = index(place * shape_.num_nodes);
    auto* const arrives = from + collected_begins[first];
    auto const num_arriving = collected_begins[first + index(shape_.num_nodes)] - collected_begins[first];
    if (place == place_) {
      if (num_arriving > 0) std::memcpy(arrives, message, static_cast<std::size_t>(num_arriving));
      continue;
    }
    receive(arrives, num_arriving, on_own_node(place));
    send(message, into - message, on_own_node(place));
  }
}

/// Sends each other node what its rank with this place gets from all ranks of this node, in their order.
void TwoLevelAllToAll::send_to_nodes() {
  auto const begins = begins_of(received_);
  auto const collected_begins = begins_of(counts_);
  auto const* const from = scratch(collected, collected_begins.back());
  auto* into = scratch(between, collected_begins.back());
  for (int node = 0; node < shape_.num_nodes; ++node) {
    if (node == node_) continue;
    auto const* const message = into;
    for (int place = 0; place < shape_.per_node; ++place) {
      auto const part = index(place * shape_.num_nodes + node);
      if (counts_[part] == 0) continue;
      std::memcpy(into, from + collected_begins[part], static_cast<std::size_t>(counts_[part]));
      into += counts_[part];
    }
    auto const first = rank_at(node, 0);
    auto const peer = static_cast<int>(rank_at(node, place_));
    receive(static_cast<std::byte*>(call_.receive) + begins[first],
            begins[first + index(shape_.per_node)] - begins[first], peer);
    send(message, into - message, peer);
  }
}

void TwoLevelAllToAll::put_own_node() {
  auto const begins = begins_of(received_);
  auto const collected_begins = begins_of(counts_);
  auto const* const from = scratch(collected, collected_begins.back());
  for (int place = 0; place < shape_.per_node; ++place) {
    if (place == place_ && keeps_own_part(call_, comm_.rank())) continue;
    auto const rank = rank_at(node_, place);
    if (received_[rank] == 0) continue;
    std::memcpy(static_cast<std::byte*>(call_.receive) + begins[rank],
                from + collected_begins[index(place * shape_.num_nodes + node_)],
                static_cast<std::size_t>(received_[rank]));
  }
}

} // namespace orthant::runtime::detail
