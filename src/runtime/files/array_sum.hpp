#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Checksum of an array that many ranks hold in pieces of any shape. With b_i the bits of element i, counted row by row over the whole
// array, and m a bijection that mixes 64 bits:
//
//   sum := sum_i m(b_i + c (i + 1))      modulo 2^64
//
// Each rank sums over its own elements in any order, and the sums of the ranks add up to the checksum of the array. A change of a single
// element always changes the checksum.

#include "runtime/comm/communicator.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace orthant::runtime {

/// m: the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
  return bits ^ (bits >> 31);
}

/// Checksum over a box of an array of these extents, of one or two dimensions. `numbers` are the box's elements, row by row.
template<class T>
[[nodiscard]] std::uint64_t sum_of_box(Hdf5File::Extents const& extents, Hdf5File::Extents const& begin,
                                       Hdf5File::Extents const& counts, std::span<T const> numbers) {
  using Bits =
      std::conditional_t<sizeof(T) == 8, std::uint64_t,
                         std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                            std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15ULL; // 2^64 / the golden ratio
  auto const is_matrix = extents.size() == 2;
  auto const num_rows = is_matrix ? counts[0] : 1;
  auto const num_columns = counts.back();
  std::uint64_t sum = 0;
  std::size_t next = 0;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    auto const first = (is_matrix ? (begin[0] + row) * extents[1] : 0) + begin.back();
    for (std::int64_t i = 0; i < num_columns; ++i)
      sum += mixed(std::bit_cast<Bits>(numbers[next++]) + odd * static_cast<std::uint64_t>(first + i + 1));
  }
  return sum;
}

/// sums := their elementwise sums over the ranks, modulo 2^64. Collective.
void add_up(Communicator const& comm, std::vector<std::uint64_t>& sums);

} // namespace orthant::runtime
