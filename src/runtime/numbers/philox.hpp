#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Philox, the counter-based generators of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (SC'11): a keyed bijection of a counter, so draw number n costs the same as draw number 0 and
// needs no state. philox4x32 with 10 rounds is the generator of all draws (random.hpp); philox2x64 with 6
// rounds, the fewest that the paper finds free of statistical defects, is the round function of the keyed
// bijection (bijection.hpp).

#include "runtime/device/device_function.hpp"

#include <cstdint>

namespace orthant::runtime {

struct Words4x32 {
  std::uint32_t word[4];
  ORTHANT_FUNCTION constexpr std::uint32_t operator[](unsigned i) const { return word[i]; }
  ORTHANT_FUNCTION friend constexpr bool operator==(Words4x32 const& x, Words4x32 const& y) {
    return x.word[0] == y.word[0] && x.word[1] == y.word[1] && x.word[2] == y.word[2] &&
           x.word[3] == y.word[3];
  }
};

struct Words2x64 {
  std::uint64_t word[2];
  ORTHANT_FUNCTION constexpr std::uint64_t operator[](unsigned i) const { return word[i]; }
  ORTHANT_FUNCTION friend constexpr bool operator==(Words2x64 const& x, Words2x64 const& y) {
    return x.word[0] == y.word[0] && x.word[1] == y.word[1];
  }
};

namespace detail {
__extension__ typedef unsigned __int128 UInt128;
}

/// floor(x y / 2^64).
ORTHANT_FUNCTION constexpr std::uint64_t multiply_high(std::uint64_t x, std::uint64_t y) {
  return static_cast<std::uint64_t>((static_cast<detail::UInt128>(x) * y) >> 64);
}

/// Philox4x32: key is (low word, high word) of `key`.
template<int Rounds = 10>
ORTHANT_FUNCTION constexpr Words4x32 philox4x32(Words4x32 counter, std::uint64_t key) {
  auto c0 = counter.word[0];
  auto c1 = counter.word[1];
  auto c2 = counter.word[2];
  auto c3 = counter.word[3];
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < Rounds; ++round) {
    auto const p0 = std::uint64_t{0xD2511F53u} * c0;
    auto const p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u; // Weyl sequences: golden ratio, sqrt(3) - 1
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Philox2x64.
template<int Rounds = 10>
ORTHANT_FUNCTION constexpr Words2x64 philox2x64(Words2x64 counter, std::uint64_t key) {
  auto c0 = counter.word[0];
  auto c1 = counter.word[1];
  for (int round = 0; round < Rounds; ++round) {
    constexpr std::uint64_t multiplier = 0xD2B74407B1CE6E93u;
    auto const high = multiply_high(multiplier, c0);
    auto const low = multiplier * c0;
    c0 = high ^ key ^ c1;
    c1 = low;
    key += 0x9E3779B97F4A7C15u;
  }
  return {{c0, c1}};
}

} // namespace orthant::runtime
