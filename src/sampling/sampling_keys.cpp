// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampling_keys.hpp"

#include "graph/exchange.hpp"
#include "graph/store/vertex_owners.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "sampling/key_table.hpp"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

namespace orthant::sampling {
namespace {

using runtime::Range;

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}
std::uint64_t bit_of(std::int64_t vertex) {
  return std::uint64_t{1} << (vertex % 64);
}
std::int64_t num_bits(std::int64_t word) {
  return std::popcount(static_cast<std::uint64_t>(word));
}

} // namespace

SamplingKeys::SamplingKeys(runtime::Communicator const& comm, graph::GraphStore const& store,
                           std::size_t num_strata)
    : comm_(comm),
      num_vertices_(store.facts().num_vertices),
      num_strata_(num_strata),
      stratum_1_begin_(num_vertices_) {
  ORTHANT_REQUIRE(num_strata == 1 || num_strata == 2, num_strata, " strata");
  if (num_strata == 1) return;
  auto const words = words_of(comm.rank());
  train_bits_.resize(index(words.size()));
  auto const trained = runtime::together(comm, [&] {
    auto const share = runtime::balanced_range(num_vertices_, comm.size(), comm.rank());
    auto ids = store.read_original_ids(graph::Order::p1, share);
    auto const mask = store.read_mask(graph::Split::train, graph::Order::p1, share);
    std::size_t num_kept = 0;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (mask[i] != 0) ids[num_kept++] = ids[i];
    ids.resize(num_kept);
    return ids;
  });
  std::size_t next = 0;
  graph::exchange<std::int64_t>(
      comm,
      [&](graph::Outbox<std::int64_t>& outbox) {
        for (; next < trained.size() && !outbox.is_full(); ++next)
          outbox.push(graph::block_owner(num_words(), comm.size(), trained[next] / 64), trained[next]);
        return next < trained.size();
      },
      [&](std::span<std::int64_t const> arrived) {
        for (auto const vertex : arrived)
          train_bits_[index(vertex / 64 - words.begin)] |= static_cast<std::int64_t>(bit_of(vertex));
      });
  stratum_1_begin_ = 0;
  for (auto const word : train_bits_)
    stratum_1_begin_ += num_bits(word);
  stratum_1_begin_ = runtime::all_reduced(comm, stratum_1_begin_);
}

Range SamplingKeys::words_of(int rank) const {
  return runtime::balanced_range(num_words(), comm_.size(), rank);
}

std::vector<std::int64_t> SamplingKeys::gather(Range wanted) const {
  auto const part_of = [&](int rank) {
    auto const words = words_of(rank);
    auto const begin = std::max(words.begin, wanted.begin);
    return Range{begin, std::max(begin, std::min(words.end, wanted.end))};
  };
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < comm_.size(); ++rank)
    counts.push_back(part_of(rank).size());
  auto const mine = part_of(comm_.rank());
  auto const first = mine.size() == 0 ? 0 : mine.begin - words_of(comm_.rank()).begin;
  std::vector<std::int64_t> bits(index(wanted.size()));
  runtime::all_gatherv(runtime::host, comm_, std::span(train_bits_).subspan(index(first), index(mine.size())),
                       bits, counts);
  return bits;
}

PackedIds SamplingKeys::of(PackedIds const& original_ids, std::int64_t window) const {
  if (num_strata_ == 1) return original_ids;
  auto [keys, by_id] = runtime::together(comm_, [&] {
    return std::pair(PackedIds(num_vertices_, static_cast<std::int64_t>(original_ids.size())),
                     KeyTable(original_ids));
  });
  std::int64_t num_before = 0; // training vertices of all windows before
  for (std::int64_t begin = 0; begin < num_words(); begin += window) {
    auto const bits = gather({begin, std::min(num_words(), begin + window)});
    std::size_t word = 0; // num_before counts up to here
    auto const advance = [&](std::size_t to) {
      for (; word < to; ++word)
        num_before += num_bits(bits[word]);
    };
    by_id.for_each({64 * begin, 64 * (begin + window)}, [&, &keys = keys](std::int64_t id, auto place) {
      advance(index(id / 64 - begin));
      auto const own_word = static_cast<std::uint64_t>(bits[word]);
      auto const trains_before = num_before + std::popcount(own_word & (bit_of(id) - 1));
      auto const trains = (own_word & bit_of(id)) != 0;
      keys.set(index(place), trains ? trains_before : stratum_1_begin_ + id - trains_before);
    });
    advance(bits.size());
  }
  return keys;
}

} // namespace orthant::sampling
