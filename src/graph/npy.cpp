// SPDX-License-Identifier: Apache-2.0
#include "graph/npy.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fmt/ranges.h>
#include <limits>
#include <optional>
#include <string_view>

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

template<class T>
void convert_type(std::string_view type, std::byte const* from, std::span<T> out) {
  if (type == "<i8") return convert<std::int64_t>(from, out);
  if (type == "<i4") return convert<std::int32_t>(from, out);
  if (type == "<i2") return convert<std::int16_t>(from, out);
  if (type == "|i1") return convert<std::int8_t>(from, out);
  if (type == "<u8") return convert<std::uint64_t>(from, out);
  if (type == "<u4") return convert<std::uint32_t>(from, out);
  if (type == "<u2") return convert<std::uint16_t>(from, out);
  if (type == "|u1" || type == "|b1") return convert<std::uint8_t>(from, out);
  if (type == "<f8") return convert<double>(from, out);
  if (type == "<f4") return convert<float>(from, out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, from + i * sizeof(half), sizeof(half));
    out[i] = static_cast<T>(widen_half(half));
  }
}

/// What stands between `open` and `close` after `key`.
std::optional<std::string> quoted_value(std::string const& header, std::string_view key, char open,
                                        char close) {
  auto const place = header.find(key);
  if (place == std::string::npos) return std::nullopt;
  auto const begin = header.find(open, place + key.size());
  auto const end = begin == std::string::npos ? begin : header.find(close, begin + 1);
  if (end == std::string::npos) return std::nullopt;
  return header.substr(begin + 1, end - begin - 1);
}

} // namespace

std::string to_string(std::vector<std::int64_t> const& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

NpyArray::NpyArray(std::unique_ptr<ByteSource> bytes) : bytes_(std::move(bytes)) {
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
  data_begin_ = begin + length;
  if (data_begin_ > bytes_->size())
    throw_user("{}: the header should end at byte {}, but there are {} bytes", name(), data_begin_,
               bytes_->size());
  std::string header(static_cast<std::size_t>(length), '\0');
  bytes_->read(begin, std::as_writable_bytes(std::span(header)));
  parse_header(header);
}

void NpyArray::parse_header(std::string const& header) {
  // {'descr': '<i8', 'fortran_order': False, 'shape': (2, 100), }
  auto const descr = quoted_value(header, "'descr'", '\'', '\'');
  auto const shape = quoted_value(header, "'shape'", '(', ')');
  bool const is_fortran = header.find("'fortran_order': True") != std::string::npos;
  if (!descr || !shape || (!is_fortran && header.find("'fortran_order': False") == std::string::npos))
    throw_user("{}: the .npy header at byte 10 is not that of a plain array of numbers", name());

  type_ = *descr;
  if (type_.starts_with('>'))
    throw_user(
        "{}: numbers are big-endian ('{}'); save it as little-endian: a.astype(a.dtype.newbyteorder('<'))",
        name(), type_);
  auto const element_bytes = bytes_of_type(type_);
  if (!element_bytes)
    throw_user("{}: type '{}' cannot be read; integers, bool, float16, float32 and float64 can", name(),
               type_);
  element_bytes_ = *element_bytes;

  constexpr auto largest = std::numeric_limits<std::int64_t>::max() / 16;
  for (char const* p = shape->data(); p < shape->data() + shape->size();) {
    std::int64_t extent = 0;
    auto const [end, error] = std::from_chars(p, shape->data() + shape->size(), extent);
    if (error == std::errc{}) {
      if (extent < 0 || (extent > 0 && num_elements() > largest / extent))
        throw_user("{}: shape ({}) in the header at byte 10 cannot be", name(), *shape);
      shape_.push_back(extent);
    }
    p = std::max(end, p + 1);
  }
  if (is_fortran && shape_.size() > 1)
    throw_user("{}: the array is in Fortran order; save it in C order: numpy.ascontiguousarray(a)", name());

  auto const num_bytes = data_begin_ + num_elements() * element_bytes_;
  if (num_bytes != bytes_->size())
    throw_user("{}: shape {} of '{}' needs {} bytes, but the file has {} ({})", name(), to_string(shape_),
               type_, num_bytes, bytes_->size(), num_bytes > bytes_->size() ? "truncated?" : "too many");
}

std::int64_t NpyArray::num_elements() const {
  std::int64_t count = 1;
  for (auto const extent : shape_)
    count *= extent;
  return count;
}

bool NpyArray::is_integer() const {
  return type_[1] == 'i' || type_[1] == 'u' || type_[1] == 'b';
}

std::int64_t NpyArray::byte_of(std::int64_t index) const {
  return data_begin_ + index * element_bytes_;
}

template<class T>
void NpyArray::read_as(std::int64_t first, std::span<T> out) {
  ORTHANT_REQUIRE(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= num_elements());
  constexpr auto native_type = sizeof(T) == 8 ? std::string_view("<i8") : std::string_view("<f4");
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
  if (!is_integer()) throw_user("{}: type '{}'; integers are wanted here: a.astype('int64')", name(), type_);
  read_as(first, out);
}

void NpyArray::read(std::int64_t first, std::span<float> out) {
  read_as(first, out);
}

void NpyArray::fail_shape(std::string const& wanted) const {
  throw_user("{}: shape {}; {} is wanted", name(), to_string(shape_), wanted);
}

std::string npy_header(std::string const& type, std::vector<std::int64_t> const& shape) {
  auto text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", type,
                          fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  while ((10 + text.size() + 1) % 64 != 0)
    text.push_back(' ');
  text.push_back('\n');
  std::string header("\x93NUMPY\x01\x00", 8);
  header.push_back(static_cast<char>(text.size() & 0xff));
  header.push_back(static_cast<char>(text.size() >> 8));
  return header + text;
}

} // namespace orthant::graph
