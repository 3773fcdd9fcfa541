#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Attention's work on the edges of a block for devices: one thread for each row, or column, and head. Equations: edge_products.hpp,
// edge_softmax.hpp, edge_scores.hpp. On host processors, edge_kernels_host.hpp.

#include "pmm/edges/edge_block.hpp"
#include "pmm/edges/edge_kernels_host.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <limits>

namespace orthant::pmm::device_edges {

template<class T>
struct Dots {
  Offset const* offsets;
  LocalColumn const* columns;
  Heads heads;
  T const* x;
  T const* y;
  T* values;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    auto const width = heads.width;
    T const* const left = x + (row * heads.count + head) * width;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      T const* const right = y + (columns[e] * heads.count + head) * width;
      T sum = 0;
      for (std::int64_t c = 0; c < width; ++c)
        sum += left[c] * right[c];
      values[e * heads.count + head] = sum;
    }
  }
};

/// result_kh := sum of w(v_eh) operand_lh over the entries of list k, which name l and the edge e.
template<class T>
struct WeightedSums {
  Offset const* offsets;
  LocalColumn const* others;
  Offset const* places; // null: entry e is edge e
  Heads heads;
  T const* values;
  T factor;
  T const* operand;
  T* result;

  KOKKOS_FUNCTION void operator()(std::int64_t k, std::int64_t head) const {
    auto const width = heads.width;
    T* const sums = result + (k * heads.count + head) * width;
    for (std::int64_t c = 0; c < width; ++c)
      sums[c] = 0;
    for (auto entry = offsets[k]; entry < offsets[k + 1]; ++entry) {
      auto const value = values[(places == nullptr ? entry : places[entry]) * heads.count + head];
      if (value <= 0) continue;
      auto const weight = value * factor;
      T const* const from = operand + (others[entry] * heads.count + head) * width;
      for (std::int64_t c = 0; c < width; ++c)
        sums[c] += weight * from[c];
    }
  }
};

using host_edges::negative_slope;

template<class T>
KOKKOS_FUNCTION T leaky(T z) {
  return z > 0 ? z : static_cast<T>(negative_slope) * z;
}
template<class T>
KOKKOS_FUNCTION T leaky_slope(T z) {
  return z > 0 ? T{1} : static_cast<T>(negative_slope);
}

template<class T>
struct StaticScores {
  Offset const* offsets;
  LocalColumn const* columns;
  std::int64_t num_heads;
  T const* s;
  T const* t;
  T* values;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    auto const own = s[row * num_heads + head];
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e)
      values[e * num_heads + head] = leaky(own + t[columns[e] * num_heads + head]);
  }
};

template<class T>
struct StaticBackward {
  Offset const* offsets;
  LocalColumn const* columns;
  std::int64_t num_heads;
  T const* s;
  T const* t;
  T* gradient;
  T* ds;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    auto const own = s[row * num_heads + head];
    T sum = 0;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      auto& g = gradient[e * num_heads + head];
      g *= leaky_slope(own + t[columns[e] * num_heads + head]);
      sum += g;
    }
    ds[row * num_heads + head] = sum;
  }
};

/// dt_jh := sum_i g_ijh.
template<class T>
struct SumsOfColumns {
  Offset const* offsets;
  Offset const* places;
  std::int64_t num_heads;
  T const* gradient;
  T* dt;

  KOKKOS_FUNCTION void operator()(std::int64_t column, std::int64_t head) const {
    T sum = 0;
    for (auto entry = offsets[column]; entry < offsets[column + 1]; ++entry)
      sum += gradient[places[entry] * num_heads + head];
    dt[column * num_heads + head] = sum;
  }
};

template<class T>
struct DynamicScores {
  Offset const* offsets;
  LocalColumn const* columns;
  Heads heads;
  T const* l;
  T const* r;
  T const* a;
  T* values;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    auto const width = heads.width;
    T const* const left = l + (row * heads.count + head) * width;
    T const* const factors = a + head * width;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      T const* const right = r + (columns[e] * heads.count + head) * width;
      T sum = 0;
      for (std::int64_t c = 0; c < width; ++c)
        sum += factors[c] * leaky(left[c] + right[c]);
      values[e * heads.count + head] = sum;
    }
  }
};

/// dL, and the terms of da.
template<class T>
struct DynamicRows {
  Offset const* offsets;
  LocalColumn const* columns;
  Heads heads;
  T const* l;
  T const* r;
  T const* a;
  T const* gradient;
  T* dl;
  T* terms;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    auto const width = heads.width;
    auto const place = (row * heads.count + head) * width;
    T const* const left = l + place;
    T const* const factors = a + head * width;
    for (std::int64_t c = 0; c < width; ++c)
      dl[place + c] = terms[place + c] = 0;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      auto const g = gradient[e * heads.count + head];
      T const* const right = r + (columns[e] * heads.count + head) * width;
      for (std::int64_t c = 0; c < width; ++c) {
        auto const z = left[c] + right[c];
        dl[place + c] += g * factors[c] * leaky_slope(z);
        terms[place + c] += g * leaky(z);
      }
    }
  }
};

/// dR += .
template<class T>
struct DynamicColumns {
  Offset const* offsets;
  LocalColumn const* rows;
  Offset const* places;
  Heads heads;
  T const* l;
  T const* r;
  T const* a;
  T const* gradient;
  T* dr;

  KOKKOS_FUNCTION void operator()(std::int64_t column, std::int64_t head) const {
    auto const width = heads.width;
    auto const place = (column * heads.count + head) * width;
    T const* const factors = a + head * width;
    for (auto entry = offsets[column]; entry < offsets[column + 1]; ++entry) {
      auto const g = gradient[places[entry] * heads.count + head];
      T const* const left = l + (rows[entry] * heads.count + head) * width;
      for (std::int64_t c = 0; c < width; ++c)
        dr[place + c] += g * factors[c] * leaky_slope(left[c] + r[place + c]);
    }
  }
};

template<class T>
struct Maxima {
  Offset const* offsets;
  std::int64_t num_heads;
  T const* values;
  T* maxima;
  T lowest = -std::numeric_limits<T>::infinity();

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    T largest = lowest;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      auto const value = values[e * num_heads + head];
      largest = largest < value ? value : largest;
    }
    maxima[row * num_heads + head] = largest;
  }
};

template<class T>
struct Exponentials {
  Offset const* offsets;
  std::int64_t num_heads;
  T const* maxima;
  T* values;
  T* sums;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    auto const largest = maxima[row * num_heads + head];
    T sum = 0;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      auto& value = values[e * num_heads + head];
      value = runtime::compat::exp(value - largest);
      sum += value;
    }
    sums[row * num_heads + head] = sum;
  }
};

template<class T>
struct Shares {
  Offset const* offsets;
  std::int64_t num_heads;
  T const* sums;
  T* values;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e)
      values[e * num_heads + head] /= sums[row * num_heads + head];
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

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    T sum = 0;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      auto const value = values[e * num_heads + head];
      if (!(value <= 0)) sum += value * factor * gradient[e * num_heads + head];
    }
    sums[row * num_heads + head] = sum;
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

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    auto const sum = sums[row * num_heads + head];
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      auto const value = values[e * num_heads + head];
      auto& g = gradient[e * num_heads + head];
      g = value <= 0 ? value * sum : value * (factor * g - sum); // of a dropped one: |v| (0 - sum)
    }
  }
};

} // namespace orthant::pmm::device_edges
