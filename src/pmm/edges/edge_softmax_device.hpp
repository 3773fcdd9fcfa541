#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Device kernels of the parts of a softmax over the edges of each row, and of its adjoint. Equations: edge_softmax.hpp.

#include "pmm/edges/edge_kernels_device.hpp"

#include <limits>

namespace orthant::pmm::device_edges {

template<class T>
struct Maxima {
  Offset const* offsets;
  std::int64_t num_heads;
  T const* values;
  T* maxima;
  T lowest = -std::numeric_limits<T>::infinity();

  KOKKOS_FUNCTION T sum(RowTeam const& team, ListPart const& part) const {
    T largest = lowest;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, part.begin, part.end),
        [&](Offset e, T& most) { most = join(most, values[e * num_heads + part.head]); },
        Kokkos::Max<T>(largest));
    return largest;
  }
  KOKKOS_FUNCTION static T join(T x, T y) { return x < y ? y : x; }
  KOKKOS_FUNCTION void finish(std::int64_t row, std::int64_t head, T largest) const {
    maxima[row * num_heads + head] = offsets[row] == offsets[row + 1] ? lowest : largest;
  }
};

template<class T>
struct Exponentials {
  Offset const* offsets;
  std::int64_t num_heads;
  T const* maxima;
  T* values;
  T* sums;

  KOKKOS_FUNCTION T sum(RowTeam const& team, ListPart const& part) const {
    auto const largest = maxima[part.list * num_heads + part.head];
    return sum_of_edges<T>(team, part, [&](Offset e) {
      auto& value = values[e * num_heads + part.head];
      return value = runtime::compat::exp(value - largest);
    });
  }
  KOKKOS_FUNCTION void finish(std::int64_t row, std::int64_t head, T total) const {
    sums[row * num_heads + head] = total;
  }
};

template<class T>
struct Shares {
  Offset const* offsets;
  std::int64_t num_heads;
  T const* sums;
  T* values;

  KOKKOS_FUNCTION T sum(RowTeam const& team, ListPart const& part) const {
    auto const total = sums[part.list * num_heads + part.head];
    for_each_edge(team, part, [&](Offset e) { values[e * num_heads + part.head] /= total; });
    return 0;
  }
};

template<class T>
struct GradientSums {
  Offset const* offsets;
  std::int64_t num_heads;
  T const* values;
  T factor;
  T const* gradient;
  T* sums;

  KOKKOS_FUNCTION T sum(RowTeam const& team, ListPart const& part) const {
    return sum_of_edges<T>(team, part, [&](Offset e) {
      auto const place = e * num_heads + part.head;
      return values[place] <= 0 ? T{0} : values[place] * factor * gradient[place];
    });
  }
  KOKKOS_FUNCTION void finish(std::int64_t row, std::int64_t head, T total) const {
    sums[row * num_heads + head] = total;
  }
};

template<class T>
struct ScoreGradients {
  Offset const* offsets;
  std::int64_t num_heads;
  T const* values;
  T factor;
  T const* sums;
  T* gradient;

  KOKKOS_FUNCTION T sum(RowTeam const& team, ListPart const& part) const {
    auto const along = sums[part.list * num_heads + part.head];
    for_each_edge(team, part, [&](Offset e) {
      auto const value = values[e * num_heads + part.head];
      auto& g = gradient[e * num_heads + part.head];
      g = value <= 0 ? value * along : value * (factor * g - along); // if dropped: |v| (0 - sum)
    });
    return 0;
  }
};

} // namespace orthant::pmm::device_edges
