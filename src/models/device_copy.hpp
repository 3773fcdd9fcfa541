#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Host arrays become arrays that kernels read. For set-up.

#include "runtime/views.hpp"

#include <span>
#include <string>
#include <vector>

namespace orthant::models {

/// A device array of T from a host array, converted element by element.
template<class T, class Source>
[[nodiscard]] runtime::Vector<T> to_vector(char const* label, std::span<Source const> source) {
  runtime::Vector<T> result(Kokkos::view_alloc(Kokkos::WithoutInitializing, std::string(label)),
                            source.size());
  auto const mirror = Kokkos::create_mirror_view(result);
  for (std::size_t i = 0; i < source.size(); ++i)
    mirror(i) = static_cast<T>(source[i]);
  Kokkos::deep_copy(result, mirror);
  return result;
}
template<class T, class Source>
[[nodiscard]] runtime::Vector<T> to_vector(char const* label, std::vector<Source> const& source) {
  return to_vector<T>(label, std::span<Source const>(source));
}

} // namespace orthant::models
