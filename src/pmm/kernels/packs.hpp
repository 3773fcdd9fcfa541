#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Element-wise work of a device on a row-major block of any width: work item i takes numbers 4 i .. 4 i + 3
// of the flat array, whatever rows they belong to, in pieces of 16 bytes. The threads of a warp then read and
// write neighbouring pieces, which is what a device needs to come near its bandwidth.

#include "runtime/arrays/views.hpp"
#include "runtime/numbers/philox.hpp"

#include <cstdint>
#include <type_traits>

namespace orthant::pmm {

inline constexpr std::int64_t pack_size = 4;

/// Neighbouring numbers that move together; 16 bytes, of doubles twice.
template<class T>
struct alignas(16) Pack {
  T number[pack_size];
};

template<class T>
KOKKOS_INLINE_FUNCTION void add(Pack<T>& sums, Pack<T> const& terms) {
  for (int k = 0; k < pack_size; ++k)
    sums.number[k] += terms.number[k];
}

/// A flat array that is read and written in packs. Where it does not begin at a multiple of 16 bytes they
/// move number by number.
template<class T>
class PackedArray {
 public:
  using Number = std::remove_const_t<T>;

  explicit PackedArray(T* numbers)
      : numbers_(numbers),
        is_aligned_(reinterpret_cast<std::uintptr_t>(numbers) % alignof(Pack<Number>) == 0) {}

  [[nodiscard]] KOKKOS_FUNCTION bool is_empty() const { return numbers_ == nullptr; }
  [[nodiscard]] KOKKOS_FUNCTION T& operator[](std::int64_t i) const { return numbers_[i]; }

  /// Numbers first .. first + count - 1, zeros after them; count may exceed 4, and may be negative.
  [[nodiscard]] KOKKOS_FUNCTION Pack<Number> load(std::int64_t first, std::int64_t count) const {
    if (is_whole(first, count)) return *reinterpret_cast<Pack<Number> const*>(numbers_ + first);
    Pack<Number> pack{};
    for (int k = 0; k < pack_size; ++k)
      if (k < count) pack.number[k] = numbers_[first + k];
    return pack;
  }

  KOKKOS_FUNCTION void store(std::int64_t first, std::int64_t count, Pack<Number> const& pack) const {
    if (is_whole(first, count)) {
      *reinterpret_cast<Pack<Number>*>(numbers_ + first) = pack;
      return;
    }
    for (int k = 0; k < pack_size; ++k)
      if (k < count) numbers_[first + k] = pack.number[k];
  }

 private:
  [[nodiscard]] KOKKOS_FUNCTION bool is_whole(std::int64_t first, std::int64_t count) const {
    return is_aligned_ && first % pack_size == 0 && count >= pack_size;
  }

  T* numbers_;
  bool is_aligned_;
};

/// Division by a number that is known at the launch: a multiplication, where a device divides 64-bit numbers
/// in about a hundred instructions. With m = ceil(2^64 / d), floor(n / d) = floor(n m / 2^64) for n d < 2^64.
/// Source: Granlund & Montgomery, "Division by invariant integers using multiplication" (PLDI 1994).
class Divisor {
 public:
  /// A divisor of 0, of a block without columns, divides nothing.
  explicit Divisor(std::int64_t divisor)
      : divisor_(divisor),
        multiplier_(divisor <= 1 ? 0 : ~std::uint64_t{0} / static_cast<std::uint64_t>(divisor) + 1) {}

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t value() const { return divisor_; }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t quotient(std::int64_t n) const {
    if (multiplier_ == 0) return n;
    return static_cast<std::int64_t>(runtime::multiply_high(static_cast<std::uint64_t>(n), multiplier_));
  }

 private:
  std::int64_t divisor_;
  std::uint64_t multiplier_;
};

/// Row and column of an element of a row-major block, to be stepped along.
struct Place {
  std::int64_t row;
  std::int64_t column;

  KOKKOS_FUNCTION Place(std::int64_t element, Divisor const& num_columns)
      : row(num_columns.quotient(element)),
        column(element - row * num_columns.value()) {}

  KOKKOS_FUNCTION void step(std::int64_t num_columns) {
    if (++column < num_columns) return;
    column = 0;
    ++row;
  }
};

/// What belongs to four neighbouring elements, the first in `column`, of a row of `values`; from its
/// beginning again where the elements go on in the next row.
template<class T>
KOKKOS_INLINE_FUNCTION Pack<std::remove_const_t<T>> row_pack(PackedArray<T> const& values,
                                                             std::int64_t column, std::int64_t num_columns) {
  if (num_columns % pack_size == 0) return values.load(column, pack_size);
  Pack<std::remove_const_t<T>> pack;
  for (int k = 0; k < pack_size; ++k) {
    pack.number[k] = values[column];
    column = column + 1 == num_columns ? 0 : column + 1;
  }
  return pack;
}

/// Calls body(first, count) for every pack of `size` numbers: numbers first .. first + min(count, 4) - 1.
template<class Body>
struct EachPack {
  Body body;
  std::int64_t size;
  KOKKOS_FUNCTION void operator()(std::int64_t pack) const {
    body(pack * pack_size, size - pack * pack_size);
  }
};

/// Enqueues on exec; does not fence.
template<class Body>
void for_each_pack(runtime::DefaultExec const& exec, char const* label, std::int64_t size, Body const& body) {
  Kokkos::parallel_for(
      label,
      Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, (size + pack_size - 1) / pack_size),
      EachPack<Body>{body, size});
}

} // namespace orthant::pmm
