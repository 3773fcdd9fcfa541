#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A long list of ids, positions or offsets, 4 bytes each if all of them fit, else 8.

#include "runtime/range.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace orthant::sampling {

class PackedIds {
 public:
  PackedIds() = default;
  /// `count` numbers 0, each to be set to one in [0, limit).
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

/// The numbers of ranges of an array, each in [0, limit). read(piece) returns those of a piece; pieces keep
/// the wide copy short, and begin where the store's checksums do.
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

} // namespace orthant::sampling
