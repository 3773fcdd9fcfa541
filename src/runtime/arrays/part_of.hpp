#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "runtime/arrays/views.hpp"
#include "runtime/range.hpp"

#include <cstddef>
#include <cstdint>

namespace orthant::runtime {

/// These numbers of an array. Shares the memory, and does not keep it alive.
template<class T>
[[nodiscard]] Vector<T> part_of(Vector<T> const& numbers, Range const& range) {
  return Vector<T>(numbers.data() + range.begin, static_cast<std::size_t>(range.size()));
}
/// `count` of them, from number `begin` on.
template<class T>
[[nodiscard]] Vector<T> part_of(Vector<T> const& numbers, std::int64_t begin, std::int64_t count) {
  return part_of(numbers, Range{begin, begin + count});
}

} // namespace orthant::runtime
