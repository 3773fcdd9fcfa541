// SPDX-License-Identifier: Apache-2.0
#include "graph/arrays/npy.hpp"

#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fmt/ranges.h>
#include <optional>
#include <type_traits>
#include <utility>

namespace orthant::graph {

using runtime::throw_user;

namespace {

constexpr std::size_t most_dims = 32; // NumPy's own limit
constexpr std::size_t longest_excerpt = 60;

/// Parses the dictionary from left to right.
class Parser {
 public:
  Parser(std::string_view text, std::string const& name) : text_(text), name_(name) {}

  [[nodiscard]] NpyHeader parse() {
    expect('{');
    while (!takes('}')) {
      parse_item();
      if (!takes(',') && !is_next('}')) fail();
    }
    skip_blanks();
    if (place_ != text_.size() || !(has_type_ && has_order_ && has_shape_)) fail();
    return std::move(header_);
  }

 private:
  void parse_item() {
    auto const key = parse_string();
    expect(':');
    if (key == "descr" && !has_type_) {
      has_type_ = true;
      if (is_next('['))
        throw_user("{}: a structured array (numbers of several kinds in each element) cannot be read; save "
                   "its fields as arrays of their own",
                   name_);
      header_.type = parse_string();
    } else if (key == "fortran_order" && !has_order_) {
      has_order_ = true;
      header_.is_fortran = parse_bool();
    } else if (key == "shape" && !has_shape_) {
      has_shape_ = true;
      parse_shape();
    } else {
      fail();
    }
  }

  std::string parse_string() {
    skip_blanks();
    char const quote = place_ < text_.size() ? text_[place_] : '\0';
    if (quote != '\'' && quote != '"') fail();
    auto const end = text_.find(quote, place_ + 1);
    if (end == std::string_view::npos) fail();
    auto const value = text_.substr(place_ + 1, end - place_ - 1);
    // Names of types and keys are short and have no escapes.
    if (value.size() > 32 ||
        std::ranges::any_of(value, [](char c) { return c < 32 || c > 126 || c == '\\'; }))
      fail();
    place_ = end + 1;
    return std::string(value);
  }

  bool parse_bool() {
    skip_blanks();
    for (auto const& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (text_.substr(place_).starts_with(word)) {
        place_ += word.size();
        return value;
      }
    fail();
  }

  /// "()", "(3,)", "(2, 100)"; Python 2 wrote "(2L, 100L)".
  void parse_shape() {
    auto const begin = place_;
    expect('(');
    bool has_comma = true;
    while (!takes(')')) {
      if (!has_comma) fail();
      skip_blanks();
      std::int64_t extent = 0;
      auto const [end, error] = std::from_chars(text_.data() + place_, text_.data() + text_.size(), extent);
      if (error == std::errc::invalid_argument) fail();
      if (error != std::errc{} || extent < 0)
        throw_user("{}: the shape{} in the .npy header cannot be: extents are between 0 and 2^63 - 1", name_,
                   text_.substr(begin, std::min(text_.find(')', begin) + 1 - begin, longest_excerpt)));
      if (header_.shape.size() == most_dims) fail();
      header_.shape.push_back(extent);
      place_ = static_cast<std::size_t>(end - text_.data());
      if (is_next('L')) ++place_;
      has_comma = takes(',');
    }
    if (header_.shape.size() == 1 && !has_comma) fail(); // "(3)" is a number, not a shape
  }

  void skip_blanks() {
    while (place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\n'))
      ++place_;
  }
  bool is_next(char c) {
    skip_blanks();
    return place_ < text_.size() && text_[place_] == c;
  }
  bool takes(char c) {
    bool const is_there = is_next(c);
    if (is_there) ++place_;
    return is_there;
  }
  void expect(char c) {
    if (!takes(c)) fail();
  }
  [[noreturn]] void fail() const {
    throw_user("{}: the .npy header is not that of a plain array of numbers, at its character {}", name_,
               place_ + 1);
  }

  std::string_view text_;
  std::string const& name_;
  std::size_t place_ = 0;
  NpyHeader header_;
  bool has_type_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

} // namespace

NpyHeader parse_npy_header(std::string_view text, std::string const& name) {
  return Parser(text, name).parse();
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

/// Size of "<U5" (four bytes per character) or "|S5".
std::optional<std::int64_t> bytes_of_text(std::string_view type) {
  constexpr std::int64_t longest = std::int64_t{1} << 16;
  bool const is_unicode = type.starts_with("<U");
  if (!is_unicode && !type.starts_with("|S")) return std::nullopt;
  std::int64_t length = 0;
  auto const* const end = type.data() + type.size();
  auto const [last, error] = std::from_chars(type.data() + 2, end, length);
  if (error != std::errc{} || last != end || length < 1 || length > longest) return std::nullopt;
  return is_unicode ? 4 * length : length;
}

/// IEEE half to float.
float widen_half(std::uint16_t half) {
  auto const sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  std::uint32_t const exponent = (half >> 10) & 0x1fu;
  std::uint32_t const fraction = half & 0x3ffu;
  if (exponent == 0) { // subnormal: fraction times 2^-24
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

/// As in NumPy, any byte except 0 is true.
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

NpyArray::NpyArray(std::unique_ptr<runtime::ByteSource> bytes, bool may_be_text) : bytes_(std::move(bytes)) {
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
  constexpr std::int64_t longest_header = 65535; // limit of version 1, far more than a plain array needs
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
  take_header(parse_npy_header(header, name()), may_be_text);
}

void NpyArray::take_header(NpyHeader header, bool may_be_text) {
  type_ = std::move(header.type);
  if (type_.starts_with('>'))
    throw_user(
        "{}: numbers are big-endian ('{}'); save it as little-endian: a.astype(a.dtype.newbyteorder('<'))",
        name(), type_);
  auto element_bytes = bytes_of_type(type_);
  if (may_be_text && !element_bytes) element_bytes = bytes_of_text(type_);
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
  ORTHANT_REQUIRE(!is_text());
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
