// SPDX-License-Identifier: Apache-2.0
#include "runtime/numbers/wire.hpp"

#include "runtime/error.hpp"

namespace orthant::runtime {
namespace {

struct Bf16 {
  static std::uint16_t encode(float value) { return encode_bf16(value); }
  static float decode(std::uint16_t half) { return decode_bf16(half); }
};
struct Fp16 {
  static std::uint16_t encode(float value) { return encode_fp16(value); }
  static float decode(std::uint16_t half) { return decode_fp16(half); }
};

template<class Work>
void with_format(Wire wire, Work&& work) {
  ORTHANT_REQUIRE(wire != Wire::native);
  wire == Wire::bf16 ? work(Bf16{}) : work(Fp16{});
}

void require_no_overflow(Wire wire, float value, std::uint16_t encoded) {
  ORTHANT_REQUIRE(!has_overflowed(wire, value, encoded), "the value ", value,
                  " does not fit the fp16 wire (largest 65504); use bf16 or the native wire");
}

} // namespace

void encode(Wire wire, std::span<float const> values, std::span<std::uint16_t> encoded) {
  ORTHANT_REQUIRE(values.size() == encoded.size());
  with_format(wire, [&](auto format) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      encoded[i] = format.encode(values[i]);
      require_no_overflow(wire, values[i], encoded[i]);
    }
  });
}

void decode(Wire wire, std::span<std::uint16_t const> encoded, std::span<float> values) {
  ORTHANT_REQUIRE(values.size() == encoded.size());
  with_format(wire, [&](auto format) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = format.decode(encoded[i]);
  });
}

void sum_in_order(Wire wire, std::span<std::uint16_t const> parts, std::span<std::uint16_t> sums) {
  with_format(wire, [&](auto format) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      auto sum = 0.0F;
      for (auto p = i; p < parts.size(); p += sums.size())
        sum += format.decode(parts[p]);
      sums[i] = format.encode(sum);
      require_no_overflow(wire, sum, sums[i]);
    }
  });
}

} // namespace orthant::runtime
