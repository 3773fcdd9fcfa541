#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Stable sort of records by an unsigned key of few bits, least significant digit first, in passes of 11 bits.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace orthant::graph {

/// records := records sorted by key(record), a uint64 below 2^key_bits. `scratch` is borrowed memory; its content is lost. Cost: O(size
/// key_bits / 11).
template<class Record, class Key>
void radix_sort(std::vector<Record>& records, std::vector<Record>& scratch, int key_bits, Key&& key) {
  constexpr int digit_bits = 11; // a histogram of 16 KiB fits in the first-level cache
  constexpr std::size_t small = 192;
  if (records.size() < small) {
    std::stable_sort(records.begin(), records.end(),
                     [&](Record const& a, Record const& b) { return key(a) < key(b); });
    return;
  }
  scratch.resize(records.size());
  std::array<std::size_t, std::size_t{1} << digit_bits> starts;
  for (int shift = 0; shift < key_bits; shift += digit_bits) {
    auto const mask = (std::uint64_t{1} << std::min(digit_bits, key_bits - shift)) - 1;
    auto const digit = [&](Record const& record) {
      return static_cast<std::size_t>(static_cast<std::uint64_t>(key(record)) >> shift & mask);
    };
    std::fill_n(starts.begin(), mask + 1, 0);
    for (auto const& record : records)
      ++starts[digit(record)];
    std::size_t sum = 0;
    for (std::size_t d = 0; d <= mask; ++d)
      sum += std::exchange(starts[d], sum);
    for (auto const& record : records)
      scratch[starts[digit(record)]++] = record;
    records.swap(scratch);
  }
}

/// Number of bits of the numbers below `bound`.
[[nodiscard]] inline int bits_below(std::uint64_t bound) {
  return bound <= 1 ? 0 : static_cast<int>(std::bit_width(bound - 1));
}

} // namespace orthant::graph
