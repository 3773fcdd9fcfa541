#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a format of numbers on the wire is: how many bytes an array takes, and how it is written, read and
// summed. The interface is called once per array, never once per number.
//
//   sum_in_order: sums[i] := round(((0 + parts[0][i]) + parts[1][i]) + ..)      in fp32

#include "runtime/numbers/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace orthant::runtime {

class Encoding {
 public:
  Encoding() = default;
  Encoding(Encoding const&) = delete;
  Encoding& operator=(Encoding const&) = delete;
  virtual ~Encoding() = default;

  /// Bytes of `count` encoded numbers. `scalar_bytes`: of one number before it is encoded; the functions below
  /// take floats.
  [[nodiscard]] virtual std::int64_t encoded_bytes(std::int64_t count,
                                                   std::int64_t scalar_bytes = sizeof(float)) const = 0;
  /// Numbers that are encoded together, with a scale in common; 1 if each stands alone. It divides `max_block`.
  /// An array may be cut at multiples of it: the bytes of the whole are then those of its pieces, in order.
  [[nodiscard]] virtual std::int64_t block_length() const = 0;
  static constexpr std::int64_t max_block = 4096;

  // The spans must fit each other: encoded.size() == encoded_bytes(values.size()). Otherwise these throw Error.

  /// encoded := values, each rounded once. Throws Error if a finite value does not fit the format.
  virtual void encode(std::span<float const> values, std::span<std::byte> encoded) const = 0;
  /// values := encoded, exactly.
  virtual void decode(std::span<std::byte const> encoded, std::span<float> values) const = 0;
  /// sums[i] += number i of `encoded`, in fp32.
  virtual void decode_and_add(std::span<std::byte const> encoded, std::span<float> sums) const = 0;

  /// sums := the sum of the parts, `count` numbers each and one behind the other, in order and in fp32, then
  /// encoded. Throws Error if a finite sum does not fit the format.
  void sum_in_order(std::span<std::byte const> parts, std::int64_t num_parts, std::span<std::byte> sums,
                    std::int64_t count) const;
};

/// Lives as long as the program.
[[nodiscard]] Encoding const& encoding_of(Wire wire);

} // namespace orthant::runtime
