#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Fast parsing of numbers in lines of text. Each function reads at a pointer inside a block in which every line ends in '\n'
// (text_blocks.hpp), and never reads beyond that. It returns the first character that it did not use, or nullptr if there is no such
// number. Numbers are separated by blanks and tabs, and at most one of ',', ';' and '|'. A '\r' counts as a blank only at the end of a line; elsewhere
// other readers would end the line there.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>

namespace orthant::graph::text {

inline bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}
inline bool is_mark(char c) {
  return c == ',' || c == ';' || c == '|';
}
/// True if a field ends here.
inline bool is_end(char const* p) {
  return is_blank(*p) || is_mark(*p) || *p == '\n';
}
inline bool is_digit(char c) {
  return static_cast<unsigned char>(c - '0') < 10;
}

inline char const* skip_blanks(char const* p) {
  while (is_blank(*p))
    ++p;
  return p;
}

/// Skips the separator between two numbers. Returns p if there is none.
inline char const* skip_separator(char const* p) {
  p = skip_blanks(p);
  return is_mark(*p) ? skip_blanks(p + 1) : p;
}

/// The end of the field that begins at `p`.
inline char const* field_end(char const* p) {
  while (!is_end(p))
    ++p;
  return p;
}

/// Returns the '\n' that ends this line.
inline char const* line_end(char const* p) {
  while (*p != '\n')
    ++p;
  return p;
}

/// True if this line contains column names: it has a field, and each field begins with a letter, a quote or '_' and is not a number such as
/// nan or inf.
inline bool is_line_of_names(char const* p) {
  p = skip_blanks(p);
  if (*p == '\n') return false;
  for (; *p != '\n'; p = skip_separator(field_end(p))) {
    bool const is_letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
    double number = 0;
    auto const [end, error] = std::from_chars(p, line_end(p), number);
    if ((!is_letter && *p != '"' && *p != '_') || (error == std::errc{} && is_end(end))) return false;
  }
  return true;
}

/// Parses at most 18 digits, a value below 10^18. Returns nullptr if there are more.
inline char const* parse_natural(char const* p, std::int64_t& value) {
  if (!is_digit(*p)) return nullptr;
  auto const* const begin = p;
  auto result = static_cast<std::uint64_t>(*p++ - '0'); // may overflow; the result is then discarded
  while (is_digit(*p))
    result = result * 10 + static_cast<std::uint64_t>(*p++ - '0');
  if (p - begin > 18) return nullptr;
  value = static_cast<std::int64_t>(result);
  return p;
}

/// Like parse_natural(), for a number that may be in quotes, as in CSV files.
inline char const* parse_id(char const* p, std::int64_t& value) {
  if (*p != '"') return parse_natural(p, value);
  auto const* const after = parse_natural(p + 1, value);
  return after != nullptr && *after == '"' ? after + 1 : nullptr;
}

/// A decimal number, "nan" or "inf", rounded to the nearest float. A mantissa below 2^24 over a power of ten up to 10^10 is one exact
/// division of floats (Clinger 1990); the library parses all other numbers.
inline char const* parse_float(char const* p, float& value) {
  constexpr float powers[] = {1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f, 1e8f, 1e9f, 1e10f};
  auto const* const begin = p;
  bool const is_negative = *p == '-';
  if (is_negative || *p == '+') ++p;
  auto const* const digits = p;
  std::uint32_t mantissa = 0;
  std::int32_t num_digits = 0;
  std::int32_t num_decimals = 0;
  while (is_digit(*p)) {
    mantissa = mantissa * 10 + static_cast<std::uint32_t>(*p++ - '0');
    ++num_digits;
  }
  if (*p == '.') {
    ++p;
    while (is_digit(*p)) {
      mantissa = mantissa * 10 + static_cast<std::uint32_t>(*p++ - '0');
      ++num_digits;
      ++num_decimals;
    }
  }
  bool const is_simple = num_digits >= 1 && num_digits <= 9 && mantissa < (1u << 24) && num_decimals <= 10;
  if (is_simple && *p != 'e' && *p != 'E') {
    auto const magnitude = static_cast<float>(mantissa) / powers[num_decimals];
    value = is_negative ? -magnitude : magnitude;
    return p;
  }
  auto const* const start = *begin == '+' ? digits : begin; // from_chars does not accept '+'
  if (*begin == '+' && *digits == '-') return nullptr;
  auto const [end, error] = std::from_chars(start, line_end(p), value);
  if (error == std::errc::result_out_of_range) { // underflow and overflow are handled below
    double wide = 0;
    auto const [wide_end, wide_error] = std::from_chars(start, line_end(p), wide);
    if (wide_error != std::errc{}) return nullptr;
    value = static_cast<float>(wide);
    return wide_end;
  }
  return error == std::errc{} ? end : nullptr;
}

/// A decimal number, "nan" or "inf", rounded to the nearest double. Returns nullptr if the number does not fit in a double.
inline char const* parse_double(char const* p, double& value) {
  bool const has_plus = *p == '+' && (is_digit(p[1]) || p[1] == '.'); // from_chars does not accept '+'
  auto const [end, error] = std::from_chars(has_plus ? p + 1 : p, line_end(p), value);
  return error == std::errc{} && end[-1] != ')' ? end : nullptr; // only C accepts "nan(..)"
}

/// The line at `p` without its end, shortened for a message, with '?' for unprintable characters.
inline std::string excerpt(char const* p, std::size_t longest = 60) {
  auto const* end = line_end(p);
  while (end > p && is_blank(end[-1]))
    --end;
  std::string line(p, std::min(static_cast<std::size_t>(end - p), longest));
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 32 || c > 126; }, '?');
  return line;
}

} // namespace orthant::graph::text
