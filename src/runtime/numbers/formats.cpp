// SPDX-License-Identifier: Apache-2.0
#include "runtime/numbers/formats.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace orthant::runtime {
namespace {

void require_fit(Encoding const& encoding, std::size_t num_values, std::size_t num_bytes) {
  ORTHANT_REQUIRE(encoding.encoded_bytes(static_cast<std::int64_t>(num_values)) ==
                      static_cast<std::int64_t>(num_bytes),
                  num_values, " numbers in ", num_bytes, " bytes");
}

/// The encoding that leaves numbers unchanged.
class NativeEncoding final : public Encoding {
 public:
  std::int64_t encoded_bytes(std::int64_t count, std::int64_t scalar_bytes) const override {
    return count * scalar_bytes;
  }
  std::int64_t block_length() const override { return 1; }
  void encode(std::span<float const> values, std::span<std::byte> encoded) const override {
    require_fit(*this, values.size(), encoded.size());
    std::ranges::copy(std::as_bytes(values), encoded.begin());
  }
  void decode(std::span<std::byte const> encoded, std::span<float> values) const override {
    require_fit(*this, values.size(), encoded.size());
    std::ranges::copy(encoded, std::as_writable_bytes(values).begin());
  }
  void decode_and_add(std::span<std::byte const> encoded, std::span<float> sums) const override {
    require_fit(*this, sums.size(), encoded.size());
    auto const* const addends = reinterpret_cast<float const*>(encoded.data());
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] += addends[i];
  }
};

/// An encoding of each number alone, in a format of numbers/formats.hpp.
template<class Format>
class NumberEncoding final : public Encoding {
 public:
  using Number = Number16<Format>;

  std::int64_t encoded_bytes(std::int64_t count, std::int64_t) const override {
    return count * static_cast<std::int64_t>(sizeof(Number));
  }
  std::int64_t block_length() const override { return 1; }
  void encode(std::span<float const> values, std::span<std::byte> encoded) const override {
    require_fit(*this, values.size(), encoded.size());
    auto* const into = reinterpret_cast<Number*>(encoded.data());
    if (arrays().narrow(values.data(), into, values.size())) return;
    for (std::size_t i = 0; i < values.size(); ++i)
      ORTHANT_REQUIRE(!Format::has_overflowed(values[i], into[i].bits), "the value ", values[i],
                      " does not fit the fp16 wire (largest 65504); use bf16 or the native wire");
  }
  void decode(std::span<std::byte const> encoded, std::span<float> values) const override {
    require_fit(*this, values.size(), encoded.size());
    arrays().widen(reinterpret_cast<Number const*>(encoded.data()), values.data(), values.size());
  }
  void decode_and_add(std::span<std::byte const> encoded, std::span<float> sums) const override {
    require_fit(*this, sums.size(), encoded.size());
    arrays().add(reinterpret_cast<Number const*>(encoded.data()), sums.data(), sums.size());
  }

 private:
  static Number16Arrays<Number> const& arrays() { return best_number16_arrays<Number>(); }
};

} // namespace

void Encoding::sum_in_order(std::span<std::byte const> parts, std::int64_t num_parts,
                            std::span<std::byte> sums, std::int64_t count) const {
  auto const part_bytes = encoded_bytes(count);
  ORTHANT_REQUIRE(std::ssize(parts) == num_parts * part_bytes && std::ssize(sums) == part_bytes);
  std::array<float, max_block> block; // the sums of one piece stay in the first-level cache
  for (std::int64_t begin = 0; begin < count; begin += max_block) {
    auto const piece = std::span(block).first(static_cast<std::size_t>(std::min(max_block, count - begin)));
    auto const offset = static_cast<std::size_t>(encoded_bytes(begin));
    auto const num_bytes = static_cast<std::size_t>(encoded_bytes(std::ssize(piece)));
    std::ranges::fill(piece, 0.0F);
    for (std::int64_t p = 0; p < num_parts; ++p)
      decode_and_add(parts.subspan(static_cast<std::size_t>(p * part_bytes) + offset, num_bytes), piece);
    encode(piece, sums.subspan(offset, num_bytes));
  }
}

Encoding const& encoding_of(Wire wire) {
  static NativeEncoding const native;
  static NumberEncoding<Bf16> const bf16;
  static NumberEncoding<Fp16> const fp16;
  switch (wire) {
  case Wire::native:
    return native;
  case Wire::bf16:
    return bf16;
  case Wire::fp16:
    return fp16;
  }
  ORTHANT_REQUIRE(false, "no format has the number ", static_cast<int>(wire));
  return native;
}

} // namespace orthant::runtime
