// SPDX-License-Identifier: Apache-2.0
#include "sampling/key_table.hpp"

#include "graph/radix_sort.hpp"
#include "runtime/error.hpp"

#include <bit>
#include <utility>

namespace orthant::sampling {
namespace {

/// Number of simultaneous look-ups: about as many cache misses as a core can have in flight.
constexpr std::size_t look_ahead = 16;

} // namespace

KeyTable::Form KeyTable::form_of(std::int64_t span, std::int64_t count) {
  constexpr std::int64_t most_in_bucket = 16;
  // Up to this shift, it takes less memory to use more buckets, of 2^8 numbers each, than to store a second byte per key.
  constexpr int longest_short = 9;
  auto const numbers_a_key = static_cast<std::uint64_t>(std::max(span / count, std::int64_t{1}));
  auto const shift = std::bit_width(numbers_a_key * most_in_bucket) - 1;
  if (shift <= longest_short) return {std::min(static_cast<int>(shift), 8), true};
  return {std::min(static_cast<int>(shift), 16), false};
}

std::int64_t KeyTable::bytes(std::int64_t span, std::int64_t count) {
  if (count == 0) return 4;
  auto const form = form_of(span, count);
  return 4 * (num_buckets(span, form) + 1) + (form.is_short ? 5 : 6) * count;
}

KeyTable::KeyTable(PackedIds const& keys) {
  ORTHANT_REQUIRE(keys.size() <= std::size_t{1} << 31, keys.size(), " vertices on one rank");
  if (keys.empty()) return;
  first_ = keys[0];
  auto last = keys[0];
  for (std::size_t i = 0; i < keys.size(); ++i) {
    first_ = std::min(first_, keys[i]);
    last = std::max(last, keys[i]);
  }
  auto const span = last - first_ + 1;
  auto const form = form_of(span, static_cast<std::int64_t>(keys.size()));
  shift_ = form.shift;
  starts_.resize(static_cast<std::size_t>(num_buckets(span, form)) + 1);
  places_.resize(keys.size());
  if (form.is_short)
    fill<std::uint8_t>(keys);
  else
    fill<std::uint16_t>(keys);
}

template<class Low>
void KeyTable::fill(PackedIds const& keys) {
  // Counting sort by bucket. starts_[b] first counts the keys of bucket b, then becomes its end, and finally decreases to its begin.
  for (std::size_t i = 0; i < keys.size(); ++i)
    ++starts_[bucket_of(keys[i])];
  std::uint32_t sum = 0;
  for (auto& start : starts_)
    start = sum += start;
  std::vector<Low> low(keys.size());
  auto const mask = (std::int64_t{1} << shift_) - 1;
  for (std::size_t place = 0; place < keys.size(); ++place) {
    auto const slot = --starts_[bucket_of(keys[place])];
    low[slot] = static_cast<Low>((keys[place] - first_) & mask);
    places_[slot] = static_cast<std::int32_t>(place);
  }

  std::vector<std::pair<Low, std::int32_t>> bucket;
  for (std::size_t b = 0; b + 1 < starts_.size(); ++b) {
    bucket.clear();
    for (auto i = starts_[b]; i < starts_[b + 1]; ++i)
      bucket.emplace_back(low[i], places_[i]);
    std::sort(bucket.begin(), bucket.end());
    auto i = starts_[b];
    for (auto const& [bits, place] : bucket) {
      low[i] = bits;
      places_[i++] = place;
    }
  }
  low_ = std::move(low);
}

/// Index of the key among the sorted keys, or -1.
template<class Low>
std::int64_t KeyTable::find_in(std::vector<Low> const& low, std::int64_t key) const {
  auto const bucket = bucket_of(key);
  if (!has_bucket(bucket)) return -1;
  auto const wanted = static_cast<Low>((key - first_) & ((std::int64_t{1} << shift_) - 1));
  auto const begin = starts_[bucket];
  auto rest = starts_[bucket + 1] - begin;
  if (rest == 0) return -1;
  auto const* from = low.data() + begin;
  while (rest > 1) { // without a branch that could be mispredicted
    auto const half = rest / 2;
    from += from[half - 1] < wanted ? half : 0;
    rest -= half;
  }
  return *from == wanted ? from - low.data() : -1;
}

std::int32_t KeyTable::find(std::int64_t key) const {
  auto const slot = std::visit([&](auto const& low) { return find_in(low, key); }, low_);
  return slot < 0 ? -1 : places_[static_cast<std::size_t>(slot)];
}

void KeyTable::find_all(std::span<std::int64_t const> keys, std::vector<std::uint64_t>& hits,
                        std::vector<std::uint64_t>& scratch) const {
  ORTHANT_REQUIRE(keys.size() <= std::size_t{1} << 32, "a batch of ", keys.size(), " vertices");
  hits.clear();
  // If the range is large, the data of a look-up are in no cache. They are prefetched: first the start, then the bucket to which it points.
  auto const ahead = [&](std::size_t i) { return bucket_of(keys[std::min(i, keys.size() - 1)]); };
  std::visit(
      [&](auto const& low) {
        for (std::size_t i = 0; i < keys.size(); ++i) {
          __builtin_prefetch(starts_.data() + std::min(ahead(i + 2 * look_ahead), starts_.size()));
          if (auto const next = ahead(i + look_ahead); has_bucket(next))
            __builtin_prefetch(low.data() + starts_[next]);
          auto const slot = find_in(low, keys[i]);
          if (slot >= 0) hits.push_back(static_cast<std::uint64_t>(slot) << 32 | i);
        }
      },
      low_);
  for (std::size_t h = 0; h < hits.size(); ++h) {
    __builtin_prefetch(places_.data() + (hits[std::min(h + look_ahead, hits.size() - 1)] >> 32));
    auto const place = static_cast<std::uint64_t>(places_[hits[h] >> 32]);
    hits[h] = place << 32 | (hits[h] & 0xffff'ffff);
  }
  graph::radix_sort(hits, scratch, graph::bits_below(places_.size()), [](auto hit) { return hit >> 32; });
}

std::int64_t KeyTable::num_bytes() const {
  auto const bytes_of = [](auto const& list) {
    return static_cast<std::int64_t>(list.size() * sizeof(list[0]));
  };
  return bytes_of(starts_) + bytes_of(places_) + std::visit(bytes_of, low_);
}

} // namespace orthant::sampling
