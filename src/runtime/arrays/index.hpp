#pragma once
// SPDX-License-Identifier: Apache-2.0

#include <concepts>
#include <cstddef>

namespace orthant::runtime {

/// A number that is known not to be negative, as an index of a standard container.
[[nodiscard]] constexpr std::size_t index(std::integral auto i) {
  return static_cast<std::size_t>(i);
}

} // namespace orthant::runtime
