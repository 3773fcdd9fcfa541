// SPDX-License-Identifier: Apache-2.0
#include "sampling/neighbour_lists.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/numbers/counts.hpp"
#include "sampling/local_vertices.hpp"

#include <algorithm>

namespace orthant::sampling {
namespace {

using runtime::index;
using runtime::Range;

/// Columns that are read at once: the keys of so many vertices are held beside the lists.
std::int64_t columns_at_once(std::int64_t num_vertices) {
  constexpr std::int64_t least = std::int64_t{1} << 20;
  constexpr std::int64_t most_pieces = 64;
  return std::max(least, divided_up(num_vertices, most_pieces));
}

} // namespace

NeighbourLists::NeighbourLists(runtime::Communicator const& comm, graph::GraphStore const& store,
                               SamplingKeys const& keys, graph::Order order, graph::Ranges const& ranges) {
  auto const& facts = store.facts();
  auto const parity =
      order == graph::Order::p1 || !facts.has_two_orders() ? graph::Parity::even : graph::Parity::odd;
  auto const n = facts.num_vertices;
  of_self_loop_ = facts.adds_self_loops() ? 1 : 0;
  auto next = runtime::together(comm, [&] {
    offsets_.assign(1, 0);
    for (auto const& range : ranges)
      for (auto const degree : store.read_degrees(order, range))
        offsets_.push_back(offsets_.back() + degree);
    keys_ = PackedIds(n, offsets_.back());
    weights_.resize(facts.is_weighted ? index(offsets_.back()) : 0);
    return std::vector<std::int64_t>(offsets_.begin(), offsets_.end() - 1);
  });
  auto const step = columns_at_once(n);
  for (std::int64_t begin = 0; begin < n; begin += step) {
    Range const columns{begin, std::min(n, begin + step)};
    auto const column_keys = keys.of(runtime::together(
        comm, [&] { return read_original_ids(store, graph::column_order(parity), {columns}); }));
    runtime::together(comm, [&] {
      std::size_t place = 0;
      for (auto const& range : ranges) {
        auto const block = store.read_block(parity, range, columns, graph::SelfLoops::dropped);
        for (std::size_t row = 0; row < index(range.size()); ++row, ++place)
          for (auto k = index(block.row_offsets[row]); k < index(block.row_offsets[row + 1]); ++k) {
            auto const to = index(next[place]++);
            keys_.set(to, column_keys[index(block.columns[k])]);
            if (!weights_.empty()) weights_[to] = block.values[k];
          }
      }
    });
  }
}

void NeighbourLists::find_degrees(std::span<std::int32_t const> places, KeyBits const& batch,
                                  std::vector<double>& degrees) const {
  degrees.clear();
  for (auto const place : places) {
    auto degree = of_self_loop_;
    for (auto k = index(offsets_[index(place)]); k < index(offsets_[index(place) + 1]); ++k)
      if (batch.has(keys_[k])) degree += weights_.empty() ? 1.0 : static_cast<double>(weights_[k]);
    degrees.push_back(degree);
  }
}

std::int64_t NeighbourLists::num_bytes() const {
  return 8 * std::ssize(offsets_) + keys_.num_bytes() + 4 * std::ssize(weights_);
}

} // namespace orthant::sampling
