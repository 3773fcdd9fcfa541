#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Signed counts for standard containers, whose own sizes and indices are unsigned.

#include "runtime/error.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::runtime {

/// `i`, which must not be negative, as an index of a standard container.
[[nodiscard]] constexpr std::size_t index(std::integral auto i) {
  return static_cast<std::size_t>(i);
}

[[nodiscard]] inline std::int64_t sum_of(std::span<std::int64_t const> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Where each of consecutive parts begins, and the end of the last one: [counts.size() + 1].
[[nodiscard]] inline std::vector<std::int64_t> begins_of(std::span<std::int64_t const> counts) {
  std::vector<std::int64_t> begins(counts.size() + 1);
  std::partial_sum(counts.begin(), counts.end(), begins.begin() + 1);
  return begins;
}

// Arithmetic on sizes that come from a user: from a file's header, an option or a table. If a result does not fit in 64 bits, these
// functions throw a UserError with the name of the quantity.

/// a * b. Throws a UserError with `what` if the product does not fit in 64 bits.
[[nodiscard]] inline std::int64_t checked_product(std::int64_t a, std::int64_t b, std::string_view what) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw_user("{}: {} x {} does not fit in 64 bits", what, a, b);
  return product;
}

/// a + b. Throws a UserError with `what` if the sum does not fit in 64 bits.
[[nodiscard]] inline std::int64_t checked_sum(std::int64_t a, std::int64_t b, std::string_view what) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw_user("{}: {} + {} does not fit in 64 bits", what, a, b);
  return sum;
}

/// `value` if it lies in [low, high]. Otherwise throws a UserError with `what` and the bounds.
[[nodiscard]] inline std::int64_t checked_range(std::int64_t value, std::int64_t low, std::int64_t high,
                                                std::string_view what) {
  if (value < low || value > high)
    throw_user("{} is {}; it must be between {} and {}", what, value, low, high);
  return value;
}

/// `value` in the narrower type `To`. Throws a UserError with `what` if it does not fit.
template<std::integral To, std::integral From>
[[nodiscard]] To checked_narrow(From value, std::string_view what) {
  if (!std::in_range<To>(value))
    throw_user("{} is {}; it must be between {} and {}", what, value, std::numeric_limits<To>::min(),
               std::numeric_limits<To>::max());
  return static_cast<To>(value);
}

} // namespace orthant::runtime
