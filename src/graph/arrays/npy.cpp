// SPDX-License-Identifier: Apache-2.0
#include "graph/arrays/npy.hpp"

#include "runtime/error.hpp"
#include "runtime/numbers/checked.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fmt/ranges.h>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace orthant::graph {

using runtime::throw_user;

static_assert(std::endian::native == std::endian::little, "the .npy reader copies little-endian numbers");

namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

std::optional<std::int64_t> bytes_of_type(std::string_view type) {
  using Pair = std::pair<std::string_view, std::int64_t>;
  constexpr std::array<Pair, 12> known{{{"<i8", 8},
                                        {"<u8", 8},
                                        {"<i4", 4},
                                        {"<u4", 4},
                                        {"<i2", 2},
                                        {"<u2", 2},
                                        {"|i1", 1},
                                        {"|u1", 1},
                                        {"|b1", 1},
                                        {"<f8", 8},
                                        {"<f4", 4},
                                        {"<f2", 2}}};
  for (auto const& [name, num_bytes] : known)
    if (name == type) return num_bytes;
  return std::nullopt;
}

/// IEEE half to float.
float widen_half(std::uint16_t half) {
  auto const sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  std::uint32_t const exponent = (half >> 10) & 0x1fu;
  std::uint32_t const fraction = half & 0x3ffu;
  if (exponent == 0) { // subnormal: fraction 2^-24
    auto const magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  auto const wide_exponent = exponent == 0x1f ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | wide_exponent << 23 | fraction << 13);
}

template<class Stored, class T>
void convert(std::byte const* from, std::span<T> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, from + i * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<T>(stored);
  }
}

/// NumPy takes any byte but 0 for true.
template<class T>
void convert_bools(std::byte const* from, std::span<T> out) {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<T>(from[i] != std::byte{0});
}

template<class T>
void convert_type(std::string_view type, std::byte const* from, std::span<T> out) {
  if (type == "<i8") return convert<std::int64_t>(from, out);
  if (type == "<i4") return convert<std::int32_t>(from, out);
  if (type == "<i2") return convert<std::int16_t>(from, out);
  if (type == "|i1") return convert<std::int8_t>(from, out);
  if (type == "<u8") return convert<std::uint64_t>(from, out);
  if (type == "<u4") return convert<std::uint32_t>(from, out);
  if (type == "<u2") return convert<std::uint16_t>(from, out);
  if (type == "|u1") return convert<std::uint8_t>(from, out);
  if (type == "|b1") return convert_bools(from, out);
  if (type == "<f8") return convert<double>(from, out);
  if (type == "<f4") return convert<float>(from, out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, from + i * sizeof(half), sizeof(half));
    out[i] = static_cast<T>(widen_half(half));
  }
}

} // namespace

std::string to_string(std::vector<std::int64_t> const& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

NpyArray::NpyArray(std::unique_ptr<runtime::ByteSource> bytes) : bytes_(std::move(bytes)) {
  constexpr std::string_view magic = "\x93NUMPY";
  std::array<std::byte, 12> start{};
  auto const available = std::min(bytes_->size(), std::int64_t{12});
  bytes_->read(0, std::span(start).first(static_cast<std::size_t>(available)));
  if (available < 12 || std::memcmp(start.data(), magic.data(), magic.size()) != 0)
    throw_user("{} is not a .npy array: its first bytes are not \\x93NUMPY", name());

  auto const at = [&](std::size_t i) { return std::to_integer<std::int64_t>(start[i]); };
  auto const version = at(6);
  if (version < 1 || version > 3)
    throw_user("{}: .npy version {}.{}; versions 1 to 3 can be read", name(), version, at(7));
  std::int64_t const begin = version == 1 ? 10 : 12;
  auto const length = version == 1 ? at(8) | at(9) << 8 : at(8) | at(9) << 8 | at(10) << 16 | at(11) << 24;
  constexpr std::int64_t longest_header = 65535; // what version 1 can say, far more than a plain array needs
  if (length > longest_header)
    throw_user("{}: a header of {} bytes is claimed; that of a plain array takes at most {}", name(), length,
               longest_header);
  data_begin_ = begin + length;
  if (data_begin_ > bytes_->size())
    throw_user("{}: the header should end at byte {}, but there are {} bytes", name(), data_begin_,
               bytes_->size());
  std::string header(static_cast<std::size_t>(length), '\0');
  bytes_->read(begin, std::as_writable_bytes(std::span(header)));
  header_cost_ = bytes_->bytes_read();
  take_header(parse_npy_header(header, name()));
}

void NpyArray::take_header(NpyHeader header) {
  type_ = std::move(header.type);
  if (type_.starts_with('>'))
    throw_user(
        "{}: numbers are big-endian ('{}'); save it as little-endian: a.astype(a.dtype.newbyteorder('<'))",
        name(), type_);
  auto const element_bytes = bytes_of_type(type_);
  if (!element_bytes)
    throw_user("{}: type '{}' cannot be read; integers, bool, float16, float32 and float64 can", name(),
               type_);
  element_bytes_ = *element_bytes;
  shape_ = std::move(header.shape);
  if (header.is_fortran && shape_.size() > 1)
    throw_user("{}: the array is in Fortran order; save it in C order: numpy.ascontiguousarray(a)", name());

  auto const what = fmt::format("{}: size of an array of shape {}", name(), to_string(shape_));
  for (auto const extent : shape_)
    num_elements_ = runtime::checked_product(num_elements_, extent, what);
  auto const data_bytes = runtime::checked_product(num_elements_, element_bytes_, what);
  auto const num_bytes = runtime::checked_sum(data_begin_, data_bytes, what);
  if (num_bytes != bytes_->size())
    throw_user("{}: shape {} of '{}' needs {} bytes, but the file has {} ({})", name(), to_string(shape_),
               type_, num_bytes, bytes_->size(), num_bytes > bytes_->size() ? "truncated?" : "too many");
}

std::int64_t NpyArray::byte_of(std::int64_t index) const {
  return data_begin_ + index * element_bytes_;
}

template<class T>
void NpyArray::read_as(std::int64_t first, std::span<T> out) {
  ORTHANT_REQUIRE(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= num_elements());
  constexpr std::string_view native_type = std::is_integral_v<T> ? "<i8" : sizeof(T) == 8 ? "<f8" : "<f4";
  if (type_ == native_type) return bytes_->read(byte_of(first), std::as_writable_bytes(out));
  buffer_.resize(buffer_bytes);
  auto const most = buffer_bytes / static_cast<std::size_t>(element_bytes_);
  while (!out.empty()) {
    auto const part = out.first(std::min(out.size(), most));
    bytes_->read(byte_of(first),
                 std::span(buffer_).first(part.size() * static_cast<std::size_t>(element_bytes_)));
    convert_type(type_, buffer_.data(), part);
    out = out.subspan(part.size());
    first += static_cast<std::int64_t>(part.size());
  }
}

void NpyArray::read(std::int64_t first, std::span<std::int64_t> out) {
  if (!is_integer())
    throw_user("{}: type '{}'; integers are wanted here: {}", name(), type_,
               type_ == "|b1" ? "numpy.flatnonzero(a) if it is a mask" : "a.astype('int64')");
  read_as(first, out);
  if (type_ != "<u8") return;
  auto const wrapped = std::ranges::find_if(out, [](std::int64_t value) { return value < 0; });
  if (wrapped == out.end()) return;
  auto const element = first + (wrapped - out.begin());
  throw_user("{}: {} at element {} (byte {}) is too large: at most 2^63 - 1 is wanted", name(),
             static_cast<std::uint64_t>(*wrapped), element, byte_of(element));
}

void NpyArray::read(std::int64_t first, std::span<float> out) {
  read_as(first, out);
}

void NpyArray::read(std::int64_t first, std::span<double> out) {
  read_as(first, out);
}

void NpyArray::fail_shape(std::string const& wanted) const {
  throw_user("{}: shape {}; {} is wanted", name(), to_string(shape_), wanted);
}

} // namespace orthant::graph
