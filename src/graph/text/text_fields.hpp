#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Splits lines of text into fields, as in CSV files. A field in quotes may contain the separator, and "" in it stands for a quote. If
// fields are separated by ',' or ';', a field that begins with a quote must end with one; with other separators, quotes that do not enclose
// a whole field are part of it. Blanks around fields are removed.

#include "graph/text/text_blocks.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

/// The separator that stands for any number of blanks and tabs.
inline constexpr char separator_blanks = ' ';

class TextFields {
 public:
  /// With `has_dicts`, a third field that begins with '{' extends to the end of the line.
  explicit TextFields(char separator, bool has_dicts = false)
      : separator_(separator),
        has_dicts_(has_dicts) {}

  /// The fields of the line at `p`, which ends in '\n'. They are valid until forget() is called or the line's memory changes.
  std::span<std::string_view const> cut(char const* p);
  /// True if a field of the last line begins with a quote that is not closed.
  [[nodiscard]] bool has_bad_quote() const { return has_bad_quote_; }
  /// Frees the text of fields with quotes inside.
  void forget() { unescaped_.clear(); }

  [[nodiscard]] char separator() const { return separator_; }
  /// For messages: "tabs", "blanks", "','".
  [[nodiscard]] std::string separator_text() const;

  /// The first of tab, '|', ';' and ',' that splits the line into `fewest` to `most` fields, else blanks.
  [[nodiscard]] static char separator_of(char const* line, std::int64_t fewest, std::int64_t most);

 private:
  [[nodiscard]] bool is_padding(char c) const {
    return (c == ' ' || c == '\t' || c == '\r') && (c != separator_ || separator_ == separator_blanks);
  }
  [[nodiscard]] bool is_end(char c) const {
    return c == '\n' || c == separator_ || (c == '\t' && separator_ == separator_blanks);
  }
  char const* take_plain(char const* p);
  char const* take_quoted(char const* p);

  char separator_;
  bool has_dicts_;
  bool has_bad_quote_ = false;
  std::vector<std::string_view> fields_;
  std::deque<std::string> unescaped_;
};

/// The lines of a table, split into fields. Empty lines are skipped. The first line has the names of the columns.
class CsvRows {
 public:
  /// Throws UserError if there is no first line.
  CsvRows(std::filesystem::path const& path, char separator);

  /// The fields of the next line, valid until the next call; empty at the end. Throws UserError if their number differs
  /// from that of the columns.
  [[nodiscard]] std::span<std::string_view const> next();
  /// Throws a UserError for the line.
  [[noreturn]] void fail(std::string const& reason) const { lines_.fail(reason); }
  [[nodiscard]] TextStart end_of_line() const { return lines_.end_of_line(); }

  [[nodiscard]] std::vector<std::string> const& columns() const { return columns_; }
  [[nodiscard]] std::optional<std::size_t> column(std::string const& name) const;
  /// Throws UserError if there is no such column.
  [[nodiscard]] std::size_t require(std::string const& name) const;

 private:
  [[nodiscard]] std::span<std::string_view const> next_of_any();

  TextLines lines_;
  TextFields fields_;
  char const* line_ = nullptr;
  std::vector<std::string> columns_;
};

/// Reads a decimal number, nan or inf, rounded to the nearest float. Returns false if the field is anything else, or too large for a double.
[[nodiscard]] bool read_number(std::string_view field, float& value);
/// Like the function above, rounded to the nearest double. Also returns false if the number is too small for a double.
[[nodiscard]] bool read_number(std::string_view field, double& value);
/// True if the field is a decimal number of any size, nan or inf.
[[nodiscard]] bool is_number(std::string_view field);

} // namespace orthant::graph
