#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Signed counts in standard containers, whose own sizes and indices are unsigned.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace orthant::runtime {

/// A number that is known not to be negative, as an index of a standard container.
[[nodiscard]] constexpr std::size_t index(std::integral auto i) {
  return static_cast<std::size_t>(i);
}

[[nodiscard]] inline std::int64_t sum_of(std::span<std::int64_t const> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

} // namespace orthant::runtime
