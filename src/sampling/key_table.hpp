#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Maps the keys of a rank's vertices to their positions in a list. The n keys are arbitrary numbers in [0, N), and a batch looks up many
// keys that are not in the table.
//
// The sorted keys are divided into buckets of 2^k consecutive numbers, so that only the last k bits of each key are stored:
//
//   starts[b]   begin of the keys of bucket b                4 bytes per bucket
//   low[i]      last k bits of the i-th smallest key         1 byte (k <= 8), else 2
//   places[i]   its place                                    4 bytes
//
// k is chosen such that evenly distributed keys give 8 to 16 keys per bucket. A key takes 5.3 bytes if the table has one in 16 numbers of
// [0, N); the minimum, log2(n!) + log2(binomial(N, n)) bits, is 3.9 bytes per key. A look-up reads one start and one bucket, and one place
// if it finds the key.

#include "runtime/range.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <variant>
#include <vector>

namespace orthant::sampling {

// A long list of ids, positions or offsets with 4 bytes each if all of them fit, otherwise 8.

class PackedIds {
 public:
  PackedIds() = default;
  /// `count` zeros, to be set to numbers in [0, limit).
  PackedIds(std::int64_t limit, std::int64_t count) {
    if (is_narrow(limit))
      narrow_.resize(static_cast<std::size_t>(count));
    else
      wide_.resize(static_cast<std::size_t>(count));
  }

  [[nodiscard]] std::int64_t operator[](std::size_t i) const {
    return wide_.empty() ? std::int64_t{narrow_[i]} : wide_[i];
  }
  void set(std::size_t i, std::int64_t id) {
    if (wide_.empty())
      narrow_[i] = static_cast<std::uint32_t>(id);
    else
      wide_[i] = id;
  }
  [[nodiscard]] std::size_t size() const { return wide_.empty() ? narrow_.size() : wide_.size(); }
  [[nodiscard]] bool empty() const { return size() == 0; }

  [[nodiscard]] std::int64_t num_bytes() const {
    return static_cast<std::int64_t>(narrow_.size() * sizeof(narrow_[0]) + wide_.size() * sizeof(wide_[0]));
  }
  /// num_bytes() of PackedIds(limit, count).
  [[nodiscard]] static constexpr std::int64_t bytes(std::int64_t limit, std::int64_t count) {
    return count * (is_narrow(limit) ? 4 : 8);
  }

 private:
  [[nodiscard]] static constexpr bool is_narrow(std::int64_t limit) {
    return limit - 1 <= std::int64_t{std::numeric_limits<std::uint32_t>::max()};
  }

  std::vector<std::uint32_t> narrow_;
  std::vector<std::int64_t> wide_;
};

/// The numbers of ranges of an array, each in [0, limit). read(piece) returns the numbers of a piece. Pieces keep the 64-bit copy short;
/// they begin at the chunks of the store's checksums.
template<class Read>
[[nodiscard]] PackedIds read_packed(std::int64_t limit, std::vector<runtime::Range> const& ranges,
                                    Read&& read) {
  constexpr std::int64_t piece_size = std::int64_t{1} << 20;
  auto count = std::int64_t{0};
  for (auto const& range : ranges)
    count += range.size();
  PackedIds ids(limit, count);
  std::size_t next = 0;
  for (auto const& range : ranges)
    for (auto begin = range.begin; begin < range.end;) {
      auto const end = std::min(range.end, (begin / piece_size + 1) * piece_size);
      for (auto const id : read(runtime::Range{begin, end}))
        ids.set(next++, id);
      begin = end;
    }
  return ids;
}

class KeyTable {
 public:
  KeyTable() = default;
  /// keys[place] must be at least 0 and unique, and there must be at most 2^31 keys; otherwise throws Error.
  explicit KeyTable(PackedIds const& keys);

  /// The place of a key, or -1.
  [[nodiscard]] std::int32_t find(std::int64_t key) const;
  /// hits := place << 32 | i for every keys[i] in the table, ascending. At most 2^32 keys. `scratch` is borrowed memory. Cost: O(1) per key
  /// if keys are evenly distributed, at worst a binary search in a bucket; and a sort of the hits.
  void find_all(std::span<std::int64_t const> keys, std::vector<std::uint64_t>& hits,
                std::vector<std::uint64_t>& scratch) const;

  /// Calls visit(key, place) for the keys of the table in `wanted`, in ascending order.
  template<class Visit>
  void for_each(runtime::Range wanted, Visit&& visit) const {
    std::visit([&](auto const& low) { for_each_in(low, wanted, visit); }, low_);
  }

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(places_.size()); }
  [[nodiscard]] std::int64_t num_bytes() const;
  /// num_bytes() of a table of `count` keys whose largest key is `span` - 1 above the smallest.
  [[nodiscard]] static std::int64_t bytes(std::int64_t span, std::int64_t count);

 private:
  /// Number of low bits of a key within its bucket, and their storage.
  struct Form {
    int shift;
    bool is_short; // stored in 8 bits, otherwise in 16
  };
  [[nodiscard]] static Form form_of(std::int64_t span, std::int64_t count);
  [[nodiscard]] static std::int64_t num_buckets(std::int64_t span, Form form) {
    return ((span - 1) >> form.shift) + 1;
  }

  template<class Low>
  void fill(PackedIds const& keys);
  /// Number of the bucket; may be past the last bucket.
  [[nodiscard]] std::size_t bucket_of(std::int64_t key) const {
    return static_cast<std::size_t>(static_cast<std::uint64_t>(key - first_) >> shift_);
  }
  [[nodiscard]] bool has_bucket(std::size_t bucket) const { return bucket < starts_.size() - 1; }
  template<class Low>
  [[nodiscard]] std::int64_t find_in(std::vector<Low> const& low, std::int64_t key) const;
  template<class Low, class Visit>
  void for_each_in(std::vector<Low> const& low, runtime::Range wanted, Visit&& visit) const {
    if (places_.empty() || wanted.end <= first_) return;
    for (auto b = bucket_of(std::max(wanted.begin, first_)); has_bucket(b); ++b) {
      auto const bucket_begin = first_ + (static_cast<std::int64_t>(b) << shift_);
      if (bucket_begin >= wanted.end) return;
      for (auto i = starts_[b]; i < starts_[b + 1]; ++i)
        if (auto const key = bucket_begin + low[i]; wanted.contains(key)) visit(key, places_[i]);
    }
  }

  std::int64_t first_ = 0; // the smallest key
  int shift_ = 0;
  std::vector<std::uint32_t> starts_{0}; // [buckets + 1]
  std::variant<std::vector<std::uint8_t>, std::vector<std::uint16_t>> low_;
  std::vector<std::int32_t> places_;
};

} // namespace orthant::sampling
