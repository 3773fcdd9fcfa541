// SPDX-License-Identifier: Apache-2.0
#include "runtime/numbers/random.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <bit>

namespace orthant::runtime {

KeyedBijection::KeyedBijection(std::uint64_t n, std::uint64_t key) : n_(n), key_(key) {
  ORTHANT_REQUIRE(n >= 1 && n <= std::uint64_t{1} << 62, "n is ", n);
  auto const log2_n = static_cast<std::uint32_t>(std::bit_width(n)) - 1;
  shift_ = std::max(1u, log2_n / 2);
  b_ = std::uint64_t{1} << shift_;
  a_ = (n + b_ - 1) / b_;
  auto const wanted = std::max(6u, (32 + shift_ - 1) / shift_);
  num_rounds_ = wanted + wanted % 2;
}

void KeyedBijection::images(std::uint64_t first, std::span<std::int64_t> images) const {
  constexpr std::size_t num_lanes = 4;
  std::size_t done = 0;
  for (; done + num_lanes <= images.size(); done += num_lanes) {
    std::uint64_t left[num_lanes];
    std::uint64_t right[num_lanes];
    for (std::size_t lane = 0; lane < num_lanes; ++lane) {
      left[lane] = (first + done + lane) >> shift_;
      right[lane] = (first + done + lane) & (b_ - 1);
    }
    for (std::uint32_t round = 0; round < num_rounds_; round += 2) {
      for (std::size_t lane = 0; lane < num_lanes; ++lane)
        left[lane] = add(left[lane], scramble(right[lane], round, a_), a_);
      for (std::size_t lane = 0; lane < num_lanes; ++lane)
        right[lane] = (right[lane] + scramble(left[lane], round + 1, b_)) & (b_ - 1);
    }
    for (std::size_t lane = 0; lane < num_lanes; ++lane) {
      auto const i = left[lane] << shift_ | right[lane];
      images[done + lane] = static_cast<std::int64_t>(i < n_ ? i : (*this)(i));
    }
  }
  for (; done < images.size(); ++done)
    images[done] = static_cast<std::int64_t>((*this)(first + done));
}

} // namespace orthant::runtime
