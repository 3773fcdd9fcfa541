// SPDX-License-Identifier: Apache-2.0
#include "runtime/numbers/bijection.hpp"

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

} // namespace orthant::runtime
