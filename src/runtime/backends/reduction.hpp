#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reductions of numbers in host memory.

#include "runtime/comm/call.hpp"

#include <cstddef>
#include <cstdint>

namespace orthant::runtime::detail {

template<class T>
void reduce(Reduction reduction, T* out, T const* first, T const* second, std::int64_t count) {
  auto const each = [&](auto&& op) {
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = op(first[i], second[i]);
  };
  switch (reduction) {
  case Reduction::sum:
    return each([](T a, T b) { return a + b; });
  case Reduction::max:
    return each([](T a, T b) { return b > a ? b : a; });
  case Reduction::min:
    return each([](T a, T b) { return b < a ? b : a; });
  }
}

/// out := first op second for `count` numbers of the call's type, element by element; `out` may be one of the two.
inline void reduce(Call const& call, std::byte* out, std::byte const* first, std::byte const* second,
                   std::int64_t count) {
  auto const as = [&]<class T>(T /*type*/) {
    reduce(call.reduction, reinterpret_cast<T*>(out), reinterpret_cast<T const*>(first),
           reinterpret_cast<T const*>(second), count);
  };
  switch (call.type) {
  case DataType::float32:
    return as(float{});
  case DataType::float64:
    return as(double{});
  case DataType::int32:
    return as(std::int32_t{});
  default:
    return as(std::int64_t{});
  }
}

} // namespace orthant::runtime::detail
