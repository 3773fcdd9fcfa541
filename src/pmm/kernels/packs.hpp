#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Elementwise work of a device on a row-major block of any width. Work item i processes numbers 4 i .. 4 i + 3 of the flat array,
// regardless of rows, and loads and stores them 16 bytes at a time. For 16-bit numbers it takes two packs of 8 bytes, computes in fp32, and
// rounds the results once when it stores them. The threads of a warp therefore access neighboring pieces, which a device needs to reach its
// bandwidth.

#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"
#include "runtime/numbers/random.hpp"

#include <bit>
#include <cstdint>
#include <type_traits>

namespace orthant::pmm {

inline constexpr std::int64_t pack_size = 4;

/// Neighboring numbers that are moved together: 16 bytes of floats, 32 bytes of doubles.
template<class T>
struct alignas(16) Pack {
  T number[pack_size];
};

template<class T>
KOKKOS_INLINE_FUNCTION void add(Pack<T>& sums, Pack<T> const& terms) {
  for (int k = 0; k < pack_size; ++k)
    sums.number[k] += terms.number[k];
}

/// `count` neighboring numbers as they are stored in memory, for one load or store instruction. 16-bit numbers are held in 32-bit words,
/// two per word, because devices load at most four halves in one instruction, but eight halves as four words.
template<class Number, int count, bool is_16_bit = runtime::is_16_bit<Number>>
struct alignas(sizeof(Number) * count <= 16 ? sizeof(Number) * count : 16) StoredNumbers {
  Number at[count];
  [[nodiscard]] KOKKOS_FUNCTION Number get(int i) const { return at[i]; }
  KOKKOS_FUNCTION void set(int i, Number number) { at[i] = number; }
};
template<class Number, int count>
struct alignas(sizeof(Number) * count <= 16 ? sizeof(Number) * count : 16)
    [[gnu::may_alias]] StoredNumbers<Number, count, true> {
  static_assert(count % 2 == 0 && std::endian::native == std::endian::little);
  std::uint32_t words[count / 2];

  [[nodiscard]] KOKKOS_FUNCTION float get(int i) const {
    Number number;
    number.bits = static_cast<std::uint16_t>(words[i / 2] >> (16 * (i % 2)));
    return number;
  }
  /// Must be called for i = 0, 1, .. in order.
  KOKKOS_FUNCTION void set(int i, float value) {
    auto const bits = static_cast<std::uint32_t>(Number(value).bits);
    words[i / 2] = i % 2 == 0 ? bits : words[i / 2] | bits << 16;
  }
};
template<class Number>
struct StoredNumbers<Number, 1, true> {
  Number number;
  [[nodiscard]] KOKKOS_FUNCTION float get(int) const { return number; }
  KOKKOS_FUNCTION void set(int, float value) { number = Number(value); }
};

/// True if `place` is aligned for reading and writing a Piece in one instruction.
template<class Piece>
KOKKOS_FUNCTION bool may_hold(void const* place) {
  return reinterpret_cast<std::uintptr_t>(place) % alignof(Piece) == 0;
}

/// A flat array that is read and written in packs. If its memory is not aligned for this, numbers are moved one by one.
template<class T>
class PackedArray {
 public:
  using Number = std::remove_const_t<T>;
  using Sum = runtime::SumOf<Number>;

  KOKKOS_FUNCTION explicit PackedArray(T* numbers)
      : numbers_(numbers),
        is_aligned_(may_hold<Stored>(numbers)) {}

  [[nodiscard]] KOKKOS_FUNCTION bool is_empty() const { return numbers_ == nullptr; }
  [[nodiscard]] KOKKOS_FUNCTION T& operator[](std::int64_t i) const { return numbers_[i]; }

  /// Returns numbers first .. first + count - 1, followed by zeros, 4 in all. `count` may exceed 4 or be negative.
  [[nodiscard]] KOKKOS_FUNCTION Pack<Sum> load(std::int64_t first, std::int64_t count) const {
    Pack<Sum> pack{};
    if (is_whole(first, count)) {
      auto const stored = *reinterpret_cast<Stored const*>(numbers_ + first);
      for (int k = 0; k < pack_size; ++k)
        pack.number[k] = stored.get(k);
      return pack;
    }
    for (int k = 0; k < pack_size; ++k)
      if (k < count) pack.number[k] = numbers_[first + k];
    return pack;
  }

  KOKKOS_FUNCTION void store(std::int64_t first, std::int64_t count, Pack<Sum> const& pack) const {
    if (is_whole(first, count)) {
      Stored stored;
      for (int k = 0; k < pack_size; ++k)
        stored.set(k, pack.number[k]);
      *reinterpret_cast<Stored*>(numbers_ + first) = stored;
      return;
    }
    for (int k = 0; k < pack_size; ++k)
      if (k < count) numbers_[first + k] = Number(pack.number[k]);
  }

 private:
  using Stored = StoredNumbers<Number, pack_size>;

  [[nodiscard]] KOKKOS_FUNCTION bool is_whole(std::int64_t first, std::int64_t count) const {
    return is_aligned_ && first % pack_size == 0 && count >= pack_size;
  }

  T* numbers_;
  bool is_aligned_;
};

/// Division by a number that is known at the launch, by a multiplication. A device takes about a hundred instructions to divide 64-bit
/// numbers. With m = ceil(2^64 / d), floor(n / d) = floor(n m / 2^64) for n d < 2^64.
/// Source: Granlund & Montgomery, "Division by invariant integers using multiplication" (PLDI 1994).
class Divisor {
 public:
  /// A divisor of 0 is valid for a block without columns, in which nothing is divided.
  KOKKOS_FUNCTION explicit Divisor(std::int64_t divisor)
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

/// Row and column of an element of a row-major block; step() moves to the next element.
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

/// Returns the entries of `values`, one per column, for four neighboring elements of a block, the first of which is in `column`. After
/// the last column the elements continue in the next row, so the entries start again at column 0.
template<class T>
KOKKOS_INLINE_FUNCTION Pack<typename PackedArray<T>::Sum>
row_pack(PackedArray<T> const& values, std::int64_t column, std::int64_t num_columns) {
  if (num_columns % pack_size == 0) return values.load(column, pack_size);
  Pack<typename PackedArray<T>::Sum> pack;
  for (int k = 0; k < pack_size; ++k) {
    pack.number[k] = values[column];
    column = column + 1 == num_columns ? 0 : column + 1;
  }
  return pack;
}

/// Calls body(first, count) for each pack of `size` numbers: first .. first + min(count, 4) - 1.
template<class Body, int packs_of_item>
struct EachPack {
  Body body;
  std::int64_t size;
  KOKKOS_FUNCTION void operator()(std::int64_t item) const {
    for (int k = 0; k < packs_of_item; ++k) {
      auto const first = (item * packs_of_item + k) * pack_size;
      if (k == 0 || first < size) body(first, size - first);
    }
  }
};

/// Calls body(first, count) for each pack of arrays of `size` elements of type Number. With 16-bit numbers, a work item takes two packs,
/// so that it also moves 16 bytes. Enqueues on exec; does not fence.
template<class Number = float, class Body>
void for_each_pack(runtime::DefaultExec const& exec, char const* label, std::int64_t size, Body const& body) {
  constexpr auto packs_of_item = runtime::is_16_bit<Number> ? 2 : 1;
  constexpr auto numbers_of_item = packs_of_item * pack_size;
  Kokkos::parallel_for(label,
                       Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(
                           exec, 0, (size + numbers_of_item - 1) / numbers_of_item),
                       EachPack<Body, packs_of_item>{body, size});
}

} // namespace orthant::pmm
