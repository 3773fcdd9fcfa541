#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Global indices, half-open ranges of them, and the partition of N indices into P parts of an axis.

#include <algorithm>
#include <cstdint>

namespace orthant::runtime {

using Offset = std::int64_t;      // position among non-zeros
using LocalColumn = std::int32_t; // column within a block

/// Half-open interval of global indices.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] constexpr std::int64_t size() const { return end - begin; }
  [[nodiscard]] constexpr bool contains(std::int64_t index) const { return begin <= index && index < end; }
  friend bool operator==(Range const&, Range const&) = default;
};

/// Indices of both ranges; empty, and not reversed, if there are none.
[[nodiscard]] constexpr Range intersection(Range const& a, Range const& b) {
  auto const begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Part `part` of [0, count) partitioned into `num_parts` parts. Sizes differ by at most one, and the larger parts come first.
[[nodiscard]] constexpr Range balanced_range(std::int64_t count, std::int64_t num_parts, std::int64_t part) {
  auto const begin_of = [&](std::int64_t i) {
    return i * (count / num_parts) + std::min(i, count % num_parts);
  };
  return {begin_of(part), begin_of(part + 1)};
}

/// The part of balanced_range() that contains `index`.
[[nodiscard]] constexpr std::int64_t balanced_part(std::int64_t count, std::int64_t num_parts,
                                                   std::int64_t index) {
  auto const small = count / num_parts;
  auto const num_larger = count % num_parts;
  auto const in_larger = num_larger * (small + 1);
  return index < in_larger ? index / (small + 1) : num_larger + (index - in_larger) / small;
}

} // namespace orthant::runtime
