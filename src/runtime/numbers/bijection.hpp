#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A pseudo-random permutation of [0, n) that is never stored: O(1) memory, O(1) expected time forwards and
// backwards.
//
// Generalised Feistel network over Z_a x Z_b (Black and Rogaway, "Ciphers with arbitrary finite domains",
// CT-RSA 2002): index i = l b + r, b = 2^k about sqrt(n), a = ceil(n / b), and alternately
//
//   l := l + F_0(r) mod a,   r := r + F_1(l) mod b,   l := l + F_2(r) mod a,   ...
//
// with F_j(x) = Philox2x64-6(counter = (x, j), key), scaled to [0, a) or [0, b) by the high half of a
// product. a b exceeds n by less than b, so an index that leaves [0, n) is sent through again (cycle
// walking), which happens with probability below 1/sqrt(n).
//
// Rounds. With ideal F_j, two indices that agree in r keep the difference of their l as long as they keep
// agreeing, b^(-rounds/2): this is the slowest statistic of pairs to mix. 32/k rounds put it at 2^-16. Six at
// least: the fewest that resist a distinguisher with less than the whole permutation (Patarin, CRYPTO 2004).

#include "runtime/numbers/random.hpp"

#include <cstdint>
#include <span>

namespace orthant::runtime {

class KeyedBijection {
 public:
  /// The permutation of [0, n) named by `key`, 1 <= n <= 2^62. RandomStream::key() makes good keys, though
  /// any 64 bits do.
  KeyedBijection(std::uint64_t n, std::uint64_t key);

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

  /// images[i] := the image of first + i, on the host; first + images.size() <= n. Rounds of a few indices run side by side: each
  /// waits for the round before it, and a processor has nothing else to do in one index.
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

  std::uint64_t n_;
  std::uint64_t a_;
  std::uint64_t b_;
  std::uint64_t key_;
  std::uint32_t shift_;      // log2(b)
  std::uint32_t num_rounds_; // even
};

} // namespace orthant::runtime
