// SPDX-License-Identifier: Apache-2.0
#include "graph/arrays/npy_header.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>

namespace orthant::graph {

using runtime::throw_user;

namespace {

constexpr std::size_t most_dims = 32; // NumPy's own limit
constexpr std::size_t longest_excerpt = 60;

/// Reads the dictionary from left to right.
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
    // A name of a type or key is short and has no escapes.
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

} // namespace orthant::graph
