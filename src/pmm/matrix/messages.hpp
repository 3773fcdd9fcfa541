#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Numbers as collectives take them: those of 16 bits travel as bytes, all others as they are.

#include "runtime/arrays/views.hpp"
#include "runtime/numbers/number16.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::pmm {

/// Shares the memory, and does not keep it alive.
template<class T>
[[nodiscard]] auto as_message(runtime::Vector<T> const& numbers) {
  if constexpr (runtime::is_16_bit<T>)
    return runtime::Vector<std::byte>(reinterpret_cast<std::byte*>(numbers.data()),
                                      numbers.extent(0) * sizeof(T));
  else
    return numbers;
}

/// The counts of such messages from counts of numbers.
template<class T>
[[nodiscard]] std::vector<std::int64_t> message_counts(std::vector<std::int64_t> counts) {
  if constexpr (runtime::is_16_bit<T>)
    for (auto& count : counts)
      count *= static_cast<std::int64_t>(sizeof(T));
  return counts;
}

} // namespace orthant::pmm
