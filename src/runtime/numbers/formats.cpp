// SPDX-License-Identifier: Apache-2.0
#include "runtime/numbers/formats.hpp"

#include "runtime/error.hpp"
#include "runtime/numbers/block_formats.hpp"

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

/// An encoding of blocks with a common scale.
template<class Format>
class BlockEncoding final : public Encoding {
 public:
  std::int64_t encoded_bytes(std::int64_t count, std::int64_t) const override {
    return bytes_of_blocks(count);
  }
  std::int64_t block_length() const override { return numbers_per_block; }
  void encode(std::span<float const> values, std::span<std::byte> encoded) const override {
    require_fit(*this, values.size(), encoded.size());
    for_each_block(values.size(), [&](std::size_t begin, std::size_t length, std::size_t byte) {
      auto const block = values.subspan(begin, length);
      std::uint32_t largest = 0;
      for (auto const value : block)
        largest = std::max(largest, magnitude_bits(value));
      auto const scales = Format::scales(largest);
      std::memcpy(&encoded[byte], &scales.scale, sizeof scales.scale);
      auto* const numbers = reinterpret_cast<std::uint8_t*>(&encoded[byte] + sizeof scales.scale);
      for (std::size_t i = 0; i < length; ++i)
        numbers[i] = Format::encode(block[i] * scales.inverse);
      for (auto i = length; i < padded_length(length); ++i)
        numbers[i] = 0;
    });
  }
  void decode(std::span<std::byte const> encoded, std::span<float> values) const override {
    decode_with(encoded, values, [](float& value, float decoded) { value = decoded; });
  }
  void decode_and_add(std::span<std::byte const> encoded, std::span<float> sums) const override {
    decode_with(encoded, sums, [](float& sum, float decoded) { sum += decoded; });
  }

 private:
  template<class Combine>
  void decode_with(std::span<std::byte const> encoded, std::span<float> results,
                   Combine const& combine) const {
    require_fit(*this, results.size(), encoded.size());
    for_each_block(results.size(), [&](std::size_t begin, std::size_t length, std::size_t byte) {
      auto const scale = scale_at(&encoded[byte]);
      auto const* const numbers = numbers_at(&encoded[byte]);
      for (std::size_t i = 0; i < length; ++i)
        combine(results[begin + i], Format::decode(numbers[i]) * scale);
    });
  }
  /// work(first number, number of numbers, first byte)
  template<class Work>
  static void for_each_block(std::size_t count, Work const& work) {
    constexpr auto length = static_cast<std::size_t>(numbers_per_block);
    for (std::size_t begin = 0, byte = 0; begin < count; begin += length, byte += bytes_per_block)
      work(begin, std::min(length, count - begin), byte);
  }
};

} // namespace

void Encoding::encode_with_feedback(std::span<float const> values, std::span<float> residuals,
                                    std::span<std::byte> encoded) const {
  require_fit(*this, values.size(), encoded.size());
  ORTHANT_REQUIRE(values.size() == residuals.size());
  std::array<float, max_block> block;
  for (std::int64_t begin = 0; begin < std::ssize(values); begin += max_block) {
    auto const length = static_cast<std::size_t>(std::min(max_block, std::ssize(values) - begin));
    auto const piece = std::span(block).first(length);
    auto const lost = residuals.subspan(static_cast<std::size_t>(begin), length);
    auto const bytes = encoded.subspan(static_cast<std::size_t>(encoded_bytes(begin)),
                                       static_cast<std::size_t>(encoded_bytes(std::ssize(piece))));
    auto const* const value = values.data() + begin;
    for (std::size_t i = 0; i < length; ++i)
      lost[i] += value[i];
    encode(lost, bytes);
    decode(bytes, piece);
    for (std::size_t i = 0; i < length; ++i)
      lost[i] -= piece[i];
  }
}

void Encoding::sum_in_order(std::span<std::byte const> parts, std::int64_t num_parts,
                            std::span<std::byte> sums, std::int64_t count, std::span<float> residuals) const {
  auto const part_bytes = encoded_bytes(count);
  ORTHANT_REQUIRE(std::ssize(parts) == num_parts * part_bytes && std::ssize(sums) == part_bytes &&
                  (residuals.empty() || std::ssize(residuals) == count));
  std::array<float, max_block> block; // the sums of one piece stay in the first-level cache
  std::array<float, max_block> rounded;
  for (std::int64_t begin = 0; begin < count; begin += max_block) {
    auto const piece = std::span(block).first(static_cast<std::size_t>(std::min(max_block, count - begin)));
    auto const offset = static_cast<std::size_t>(encoded_bytes(begin));
    auto const num_bytes = static_cast<std::size_t>(encoded_bytes(std::ssize(piece)));
    std::ranges::fill(piece, 0.0F);
    for (std::int64_t p = 0; p < num_parts; ++p)
      decode_and_add(parts.subspan(static_cast<std::size_t>(p * part_bytes) + offset, num_bytes), piece);
    auto const encoded = sums.subspan(offset, num_bytes);
    encode(piece, encoded);
    if (residuals.empty()) continue;
    decode(encoded, std::span(rounded).first(piece.size()));
    for (std::size_t i = 0; i < piece.size(); ++i)
      residuals[static_cast<std::size_t>(begin) + i] += piece[i] - rounded[i];
  }
}

Encoding const& encoding_of(Wire wire) {
  static NativeEncoding const native;
  static NumberEncoding<Bf16> const bf16;
  static NumberEncoding<Fp16> const fp16;
  static BlockEncoding<Fp8> const fp8;
  static BlockEncoding<Int8> const int8;
  switch (wire) {
  case Wire::native:
    return native;
  case Wire::bf16:
    return bf16;
  case Wire::fp16:
    return fp16;
  case Wire::fp8:
    return fp8;
  case Wire::int8:
    return int8;
  }
  ORTHANT_REQUIRE(false, "no format has the number ", static_cast<int>(wire));
  return native;
}

} // namespace orthant::runtime
