#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Counter-based random numbers. A draw is a pure function of (seed, purpose, step, layer) and of two indices (a, b), by convention the
// *original* vertex id and the feature or draw number. It never depends on a rank, a position or an order of calls (docs/design.md 2.3).
// Every function runs in any Kokkos execution space and on the plain host.
//
//   key(64) = Philox4x32-10(counter = (step, purpose, layer), key = seed)[0..1]
//   block(a, b) = Philox4x32-10(counter = (b, a), key)
//
// A block has 128 bits: four 32-bit draws, two 64-bit draws, two normals or one bounded integer.
//
//   bernoulli(p, a, b)  word b mod 4 of block(a, b / 4)        normal(a, b)      part b mod 2 of block(a, b / 2)
//   uniform(a, b)       half b mod 2 of block(a, b / 2)        integer(n, a, b)  all of block(a, b)
//
// Different kinds of draw from *one* stream share bits: give each kind its own purpose (or step, or layer). float and double draws come
// from the same bits and differ only by rounding.

#include "runtime/device/device_function.hpp"

#include <cmath>
#include <cstdint>
#include <span>

namespace orthant::runtime {

// Philox, the counter-based generators of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC'11): a keyed
// bijection of a counter, so that draw number n costs the same as draw number 0 and needs no state. philox4x32 with 10 rounds generates all
// draws. philox2x64 with 6 rounds, the fewest without statistical defects in the paper, is the round function of KeyedBijection.

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

/// Philox4x32; the two key words are (low word, high word) of `key`.
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
    k0 += 0x9E3779B9u; // Weyl sequences: golden ratio and sqrt(3) - 1
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

/// Purpose of a stream. The numbers enter the key: never renumber, only append.
enum class Purpose : std::uint32_t {
  weights = 1,
  dropout = 2,
  sampling = 3,
  permutation = 4,
  features = 5,
  labels = 6,
  split = 7,
  generator_edges = 8,
  generator_blocks = 9,
  generator_features = 10,
  generator_labels = 11,
  edge_weights = 12,
  tokens = 13,
  routing = 14,
  test = 15,
  edge_split = 18,
  negative_links = 19,
  edge_dropout = 20,
};

/// 53 bits in [0, 1).
ORTHANT_FUNCTION constexpr double uniform_double(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}
/// 24 bits in [0, 1): the first 24 bits of uniform_double().
ORTHANT_FUNCTION constexpr float uniform_float(std::uint64_t bits) {
  return static_cast<float>(bits >> 40) * 0x1p-24f;
}
/// 52 bits in the open interval (0, 1): the midpoints of 2^52 equal cells.
ORTHANT_FUNCTION constexpr double uniform_open(std::uint64_t bits) {
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}
/// floor(n x / 2^128), where x is the 128 bits of `block`. The result is in [0, n), and no value's probability is off by more than 2^-128.
ORTHANT_FUNCTION constexpr std::uint64_t bounded_integer(Words4x32 const& block, std::uint64_t n) {
  auto const low = block[0] | std::uint64_t{block[1]} << 32;
  auto const high = block[2] | std::uint64_t{block[3]} << 32;
  auto const product = static_cast<detail::UInt128>(high) * n + multiply_high(low, n);
  return static_cast<std::uint64_t>(product >> 64);
}

/// The threshold t for which a uniform 32-bit word w has P(w < t) = p, to 2^-33. Exact for p <= 0 (never) and p >= 1 (always).
ORTHANT_FUNCTION constexpr std::uint64_t bernoulli_threshold(double p) {
  if (!(p > 0)) return 0;
  if (p >= 1) return std::uint64_t{1} << 32;
  return static_cast<std::uint64_t>(p * 0x1p32 + 0.5);
}

struct NormalPair {
  double first;
  double second;
};
/// Two independent standard normals from one block (Box and Muller, 1958). Their absolute values are at most 8.6.
ORTHANT_FUNCTION NormalPair normal_pair(Words4x32 const& block) {
  constexpr double two_pi = 6.283185307179586476925286766559;
  auto const low = block[0] | std::uint64_t{block[1]} << 32;
  auto const high = block[2] | std::uint64_t{block[3]} << 32;
  // The unqualified C functions on double exist in every execution space.
  auto const radius = ::sqrt(-2.0 * ::log(uniform_open(low)));
  auto const angle = two_pi * uniform_double(high);
  return {radius * ::cos(angle), radius * ::sin(angle)};
}

/// All draws of one (seed, purpose, step, layer). It has 64 bits; copy it into kernels.
class RandomStream {
 public:
  ORTHANT_FUNCTION constexpr RandomStream(std::uint64_t seed, Purpose purpose, std::uint64_t step = 0,
                                          std::uint32_t layer = 0)
      : key_(derive(seed, purpose, step, layer)) {}

  /// 128 uniform bits.
  [[nodiscard]] ORTHANT_FUNCTION constexpr Words4x32 block(std::uint64_t a, std::uint64_t b = 0) const {
    return philox4x32<10>({{static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b >> 32),
                            static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32)}},
                          key_);
  }
  /// Draw b of 32 uniform bits. Draws 4j .. 4j+3 are the words of block(a, j).
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::uint32_t bits32(std::uint64_t a, std::uint64_t b = 0) const {
    return block(a, b >> 2)[static_cast<unsigned>(b & 3)];
  }
  /// Draw b of 64 uniform bits. Draws 2j and 2j+1 are the halves of block(a, j).
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::uint64_t bits64(std::uint64_t a, std::uint64_t b = 0) const {
    auto const words = block(a, b >> 1);
    auto const first = static_cast<unsigned>(b & 1) * 2;
    return words[first] | std::uint64_t{words[first + 1]} << 32;
  }

  /// Uniform in [0, 1): 24 bits for float, 53 bits for double. The float is the truncated double.
  template<class T>
  [[nodiscard]] ORTHANT_FUNCTION constexpr T uniform(std::uint64_t a, std::uint64_t b = 0) const {
    if constexpr (sizeof(T) == sizeof(float))
      return uniform_float(bits64(a, b));
    else
      return uniform_double(bits64(a, b));
  }
  /// Standard normal. The float is the rounded double.
  template<class T>
  [[nodiscard]] ORTHANT_FUNCTION T normal(std::uint64_t a, std::uint64_t b = 0) const {
    auto const pair = normal_pair(block(a, b >> 1));
    return static_cast<T>((b & 1) == 0 ? pair.first : pair.second);
  }
  /// True with probability p, to 2^-33. It compares integers, so that all backends and scalar types agree.
  [[nodiscard]] ORTHANT_FUNCTION constexpr bool bernoulli(double p, std::uint64_t a,
                                                          std::uint64_t b = 0) const {
    return bits32(a, b) < bernoulli_threshold(p);
  }
  /// Uniform in [0, n), n >= 1.
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::uint64_t integer(std::uint64_t n, std::uint64_t a,
                                                                 std::uint64_t b = 0) const {
    return bounded_integer(block(a, b), n);
  }

  /// The stream as one number, for example the key of a KeyedBijection.
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::uint64_t key() const { return key_; }

 private:
  ORTHANT_FUNCTION static constexpr std::uint64_t derive(std::uint64_t seed, Purpose purpose,
                                                         std::uint64_t step, std::uint32_t layer) {
    auto const words =
        philox4x32<10>({{static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32),
                         static_cast<std::uint32_t>(purpose), layer}},
                       seed);
    return words[0] | std::uint64_t{words[1]} << 32;
  }
  std::uint64_t key_;
};

// A pseudo-random permutation of [0, n) that is never stored: O(1) memory, and O(1) expected time in both directions.
//
// It is a generalized Feistel network over Z_a x Z_b (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). With index
// i = l b + r, b = 2^k about sqrt(n) and a = ceil(n / b), the rounds are alternately
//
//   l := l + F_0(r) mod a,   r := r + F_1(l) mod b,   l := l + F_2(r) mod a,   ...
//
// with F_j(x) = Philox2x64-6(counter = (x, j), key), scaled to [0, a) or [0, b) by the high half of a product. a b exceeds n by less than
// b. An index outside [0, n) goes through the network again (cycle walking), which happens with probability below 1/sqrt(n).
//
// Number of rounds: with ideal F_j, two indices with equal r keep the difference of their l as long as their r stay equal, with probability
// b^(-rounds/2). Of all statistics of pairs, this one mixes slowest. 32/k rounds bring it to 2^-16. At least six rounds are used, the
// fewest that resist a distinguisher that sees less than the whole permutation (Patarin, CRYPTO 2004).

class KeyedBijection {
 public:
  /// The permutation of [0, n) for `key`, 1 <= n <= 2^62. Any 64 bits are a valid key; RandomStream::key() returns good ones.
  KeyedBijection(std::uint64_t n, std::uint64_t key);
  /// Of [0, 1).
  KeyedBijection() = default;

  [[nodiscard]] ORTHANT_FUNCTION std::uint64_t size() const { return n_; }

  /// The image of i < n.
  [[nodiscard]] ORTHANT_FUNCTION std::uint64_t operator()(std::uint64_t i) const {
    do {
      auto left = i >> shift_;
      auto right = i & (b_ - 1);
      for (std::uint32_t round = 0; round < num_rounds_; round += 2) {
        left = add(left, scramble(right, round, a_), a_);
        right = (right + scramble(left, round + 1, b_)) & (b_ - 1);
      }
      i = left << shift_ | right;
    } while (i >= n_);
    return i;
  }

  /// images[i] := the image of first + i, on the host; first + images.size() <= n. Computes a few indices at the same time: each round of
  /// an index depends on the round before, so that one index alone does not keep a processor busy.
  void images(std::uint64_t first, std::span<std::int64_t> images) const;

  /// The index whose image is i < n.
  [[nodiscard]] ORTHANT_FUNCTION std::uint64_t inverse(std::uint64_t i) const {
    do {
      auto left = i >> shift_;
      auto right = i & (b_ - 1);
      for (std::uint32_t round = num_rounds_; round > 0; round -= 2) {
        right = (right - scramble(left, round - 1, b_)) & (b_ - 1);
        left = add(left, a_ - scramble(right, round - 2, a_), a_);
      }
      i = left << shift_ | right;
    } while (i >= n_);
    return i;
  }

 private:
  ORTHANT_FUNCTION static std::uint64_t add(std::uint64_t x, std::uint64_t y, std::uint64_t modulus) {
    auto const sum = x + y;
    return sum >= modulus ? sum - modulus : sum;
  }
  /// F_round(x), in [0, bound).
  ORTHANT_FUNCTION std::uint64_t scramble(std::uint64_t x, std::uint32_t round, std::uint64_t bound) const {
    return multiply_high(philox2x64<6>({{x, round}}, key_)[0], bound);
  }

  std::uint64_t n_ = 1;
  std::uint64_t a_ = 1;
  std::uint64_t b_ = 1;
  std::uint64_t key_ = 0;
  std::uint32_t shift_ = 0;      // log2(b)
  std::uint32_t num_rounds_ = 0; // even
};

} // namespace orthant::runtime
