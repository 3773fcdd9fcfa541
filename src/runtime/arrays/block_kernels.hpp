#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Kernels that encode, decode and sum arrays in formats with blocks (numbers/block_formats.hpp), in device memory. Each block belongs to one
// thread with 32 vector lanes, that is, to one warp.

#include "runtime/numbers/block_formats.hpp"

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>

namespace orthant::runtime::detail {

/// Number i of an encoded array.
template<class Format>
KOKKOS_FUNCTION float number_of_blocks(std::byte const* encoded, std::int64_t i) {
  auto const* const block = encoded + i / numbers_per_block * bytes_per_block;
  return Format::decode(numbers_at(block)[i % numbers_per_block]) * scale_at(block);
}

/// The numbers to encode: an array, or an array and residuals, which then keep what is lost.
struct GivenNumbers {
  float const* values;
  float* residuals; // null: none

  KOKKOS_FUNCTION float number(std::int64_t i) const {
    return residuals == nullptr ? values[i] : values[i] + residuals[i];
  }
  KOKKOS_FUNCTION void keep_lost(std::int64_t i, float number, float decoded) const {
    if (residuals != nullptr) residuals[i] = number - decoded;
  }
};

/// Sums of encoded parts in order. What their encoding loses is added to the residuals.
template<class Format>
struct SummedNumbers {
  std::byte const* parts;
  std::int64_t num_parts;
  std::int64_t part_bytes;
  float* residuals; // null: none

  KOKKOS_FUNCTION float number(std::int64_t i) const {
    auto sum = 0.0F;
    for (std::int64_t p = 0; p < num_parts; ++p)
      sum += number_of_blocks<Format>(parts + p * part_bytes, i);
    return sum;
  }
  KOKKOS_FUNCTION void keep_lost(std::int64_t i, float number, float decoded) const {
    if (residuals != nullptr) residuals[i] += number - decoded;
  }
};

template<class Format, class Numbers, class Exec>
struct EncodeBlocks {
  using Member = typename Kokkos::TeamPolicy<Exec>::member_type;

  Numbers numbers;
  std::byte* encoded;
  std::int64_t count;

  KOKKOS_FUNCTION void operator()(Member const& member) const {
    auto const begin = static_cast<std::int64_t>(member.league_rank()) * numbers_per_block;
    auto const length =
        static_cast<int>(count - begin < numbers_per_block ? count - begin : numbers_per_block);
    std::uint32_t largest = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(member, length),
        [&](int i, std::uint32_t& so_far) {
          auto const bits = magnitude_bits(numbers.number(begin + i));
          if (bits > so_far) so_far = bits;
        },
        Kokkos::Max<std::uint32_t>(largest));
    auto const scales = Format::scales(largest);
    auto* const block = encoded + static_cast<std::int64_t>(member.league_rank()) * bytes_per_block;
    auto* const into = reinterpret_cast<std::uint8_t*>(block + sizeof(float));
    Kokkos::single(Kokkos::PerThread(member), [&] { *reinterpret_cast<float*>(block) = scales.scale; });
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(member, padded_length(length)), [&](int i) {
      if (i >= length) {
        into[i] = 0;
        return;
      }
      auto const number = numbers.number(begin + i);
      into[i] = Format::encode(number * scales.inverse);
      numbers.keep_lost(begin + i, number, Format::decode(into[i]) * scales.scale);
    });
  }
};

template<class Format, class Numbers, class Exec>
void encode_blocks_on(Exec const& exec, Numbers const& numbers, std::byte* encoded, std::int64_t count) {
  constexpr int num_lanes = 32; // four numbers each
  auto const num_blocks = static_cast<int>((count + numbers_per_block - 1) / numbers_per_block);
  Kokkos::parallel_for("orthant::runtime::encode_blocks",
                       Kokkos::TeamPolicy<Exec>(exec, num_blocks, 1, num_lanes),
                       EncodeBlocks<Format, Numbers, Exec>{numbers, encoded, count});
}

template<class Format, class Exec>
void decode_blocks_on(Exec const& exec, std::byte const* encoded, float* values, std::int64_t count) {
  Kokkos::parallel_for(
      "orthant::runtime::decode_blocks", Kokkos::RangePolicy<Exec, std::int64_t>(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) { values[i] = number_of_blocks<Format>(encoded, i); });
}

} // namespace orthant::runtime::detail
