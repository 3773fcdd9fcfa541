#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What bias.cpp does to a pack of numbers, on a device.

#include "pmm/rows/column_sums.hpp"

namespace orthant::pmm {

/// z(i, j) += bias(j)
template<class T>
class AddBiasToPack {
 public:
  AddBiasToPack(runtime::Matrix<T> const& z, runtime::Vector<runtime::SumOf<T>> const& bias)
      : z_(z.data()),
        bias_(bias.data()),
        num_columns_(static_cast<std::int64_t>(z.extent(1))) {}

  KOKKOS_FUNCTION void operator()(std::int64_t first, std::int64_t count) const {
    auto pack = z_.load(first, count);
    add(pack, row_pack(bias_, Place(first, num_columns_).column, num_columns_.value()));
    z_.store(first, count, pack);
  }

 private:
  PackedArray<T> z_;
  PackedArray<runtime::SumOf<T> const> bias_;
  Divisor num_columns_;
};

/// What is there: the terms of a plain sum.
template<class T>
class LoadedPack {
 public:
  static constexpr bool only_loads = true;

  explicit LoadedPack(runtime::Matrix<T> const& from) : from_(from.data()) {}
  KOKKOS_FUNCTION Pack<runtime::SumOf<T>> operator()(std::int64_t first, std::int64_t count) const {
    return from_.load(first, count);
  }

 private:
  PackedArray<T const> from_;
};

} // namespace orthant::pmm
