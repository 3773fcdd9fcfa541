#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Operands of kernels on host arrays, and results bit by bit.

#include "support/reference.hpp"

#include <cstdint>
#include <cstring>
#include <vector>

namespace orthant::testing {

/// Between -5 and 5, by a formula.
template<class T>
std::vector<T> numbers(std::uint64_t seed, std::int64_t count) {
  std::vector<T> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(static_cast<T>(5 * small_real(seed, i, 0)));
  return result;
}

template<class T>
bool are_equal_bits(std::vector<T> const& x, std::vector<T> const& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

} // namespace orthant::testing
