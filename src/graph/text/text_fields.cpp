// SPDX-License-Identifier: Apache-2.0
#include "graph/text/text_fields.hpp"

#include "graph/text/text_scanner.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>
#include <system_error>

namespace orthant::graph {

std::span<std::string_view const> TextFields::cut(char const* p) {
  fields_.clear();
  has_bad_quote_ = false;
  for (;;) {
    while (is_padding(*p))
      ++p;
    if (separator_ == separator_blanks && *p == '\n' && !fields_.empty()) return fields_;
    auto const* const after = *p == '"' ? take_quoted(p) : nullptr;
    p = after != nullptr ? after : take_plain(p);
    if (*p == '\n') return fields_;
    ++p;
  }
}

/// Reads the field at `p` up to the separator. Returns a pointer to the separator.
char const* TextFields::take_plain(char const* p) {
  bool const is_rest = has_dicts_ && *p == '{' && fields_.size() == 2;
  auto const* const begin = p;
  while (is_rest ? *p != '\n' : !is_end(*p))
    ++p;
  auto const* end = p;
  while (end > begin && is_padding(end[-1]))
    --end;
  fields_.emplace_back(begin, static_cast<std::size_t>(end - begin));
  return p;
}

/// Reads a field in quotes. Returns nullptr if the quote at `p` does not enclose the field.
char const* TextFields::take_quoted(char const* p) {
  auto const* const begin = p + 1;
  bool has_quotes = false;
  auto const* end = begin;
  for (; *end != '\n'; ++end) {
    if (*end != '"') continue;
    if (end[1] != '"') break;
    has_quotes = true;
    ++end;
  }
  auto const* after = *end == '\n' ? end : end + 1;
  if (separator_ != separator_blanks)
    while (is_padding(*after))
      ++after;
  if (*end == '\n' || (!is_end(*after) && *after != '\r')) {
    has_bad_quote_ = has_bad_quote_ || separator_ == ',' || separator_ == ';';
    return nullptr;
  }
  std::string_view const content(begin, static_cast<std::size_t>(end - begin));
  if (!has_quotes) {
    fields_.push_back(content);
    return *after == '\r' ? after + 1 : after;
  }
  auto& copy = unescaped_.emplace_back();
  for (std::size_t i = 0; i < content.size(); i += content[i] == '"' ? 2 : 1)
    copy += content[i];
  fields_.emplace_back(copy);
  return *after == '\r' ? after + 1 : after;
}

std::string TextFields::separator_text() const {
  if (separator_ == '\t') return "tabs";
  if (separator_ == separator_blanks) return "blanks";
  return fmt::format("'{}'", separator_);
}

namespace {
/// Result of from_chars for a field; an error unless the whole field is a number.
template<class Number>
std::errc parse_whole(std::string_view field, Number& value) {
  bool const has_plus =
      field.size() > 1 && field[0] == '+' && field[1] != '-'; // from_chars does not accept '+'
  auto const* const end = field.data() + field.size();
  auto const [after, error] = std::from_chars(field.data() + (has_plus ? 1 : 0), end, value);
  return after == end ? error : std::errc::invalid_argument;
}
} // namespace

bool read_number(std::string_view field, double& value) {
  return parse_whole(field, value) == std::errc{};
}

bool read_number(std::string_view field, float& value) {
  auto const error = parse_whole(field, value);
  if (error != std::errc::result_out_of_range) return error == std::errc{};
  double wide = 0; // for numbers that become 0 or infinite as a float
  bool const is_read = read_number(field, wide);
  value = static_cast<float>(wide);
  return is_read;
}

bool is_number(std::string_view field) {
  double value = 0;
  return parse_whole(field, value) != std::errc::invalid_argument;
}

CsvRows::CsvRows(std::filesystem::path const& path, char separator) : lines_(path), fields_(separator) {
  auto const names = next_of_any();
  columns_.assign(names.begin(), names.end());
  if (columns_.empty())
    runtime::throw_user("{} is empty; a line with the names of its columns is wanted", path.string());
}

std::span<std::string_view const> CsvRows::next_of_any() {
  fields_.forget();
  do
    line_ = lines_.next();
  while (line_ != nullptr && *text::skip_blanks(line_) == '\n');
  if (line_ == nullptr) return {};
  auto const fields = fields_.cut(line_);
  if (fields_.has_bad_quote())
    fail(fmt::format("a quote is not closed, or text follows the closing one, in \"{}\"",
                     text::excerpt(line_)));
  return fields;
}

std::span<std::string_view const> CsvRows::next() {
  auto const fields = next_of_any();
  if (!fields.empty() && fields.size() != columns_.size())
    fail(fmt::format("\"{}\" has {} columns; the first line names {}", text::excerpt(line_), fields.size(),
                     columns_.size()));
  return fields;
}

std::optional<std::size_t> CsvRows::column(std::string const& name) const {
  auto const found = std::ranges::find(columns_, name);
  if (found == columns_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - columns_.begin());
}

std::size_t CsvRows::require(std::string const& name) const {
  auto const found = column(name);
  if (!found)
    runtime::throw_user("{} has no column {}; it has {}", lines_.blocks().path().string(), name,
                        fmt::join(columns_, ", "));
  return *found;
}

char TextFields::separator_of(char const* line, std::int64_t fewest, std::int64_t most) {
  for (auto const candidate : {'\t', '|', ';', ','}) {
    auto const count = std::ssize(TextFields(candidate).cut(line));
    if (count >= fewest && count <= most) return candidate;
  }
  return separator_blanks;
}

} // namespace orthant::graph
