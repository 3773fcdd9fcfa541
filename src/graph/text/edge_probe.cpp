// SPDX-License-Identifier: Apache-2.0
#include "graph/text/text_edges.hpp"

#include "graph/text/text_blocks.hpp"
#include "graph/text/text_fields.hpp"
#include "graph/text/text_scanner.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

namespace {

/// A line of the file that is neither empty nor a comment.
struct DataLine {
  std::string text; // ends in '\n'
  TextStart start;
};

std::vector<DataLine> first_lines(std::filesystem::path const& path, std::size_t wanted) {
  TextLines lines(path);
  std::vector<DataLine> found;
  TextStart start;
  while (auto const* const line = found.size() < wanted ? lines.next() : nullptr) {
    auto const* const p = text::skip_blanks(line);
    if (*p != '\n' && *p != '#' && *p != '%') found.push_back({std::string(p, text::line_end(p) + 1), start});
    start = lines.end_of_line();
  }
  return found;
}

/// Reads the two ends of a line if they are ids. Returns the character after them.
char const* skip_ids(char const* p) {
  std::int64_t id = 0;
  auto const* const first = text::parse_id(p, id);
  if (first == nullptr) return nullptr;
  auto const* const second = text::skip_separator(first);
  if (second == first) return nullptr;
  auto const* const after = text::parse_id(second, id);
  return after != nullptr && text::is_end(after) ? after : nullptr;
}

bool is_natural(std::string_view field) {
  return !field.empty() && std::ranges::all_of(field, [](char c) { return text::is_digit(c); });
}

bool is_word(std::string_view field) {
  if (field.empty() || is_number(field)) return false;
  auto const first = static_cast<unsigned char>(field.front());
  return std::isalpha(first) != 0 || first == '_' || first >= 0x80;
}

/// The separator of an edge in names. A dict at the end of the line may contain other separators.
char separator_of_edge(std::string const& line) {
  auto head = line;
  for (auto at = line.find('{'); at != std::string::npos; at = line.find('{', at + 1))
    if (at > 0 && text::is_end(&line[at - 1]) && line.find('}', at) != std::string::npos) {
      head = line.substr(0, at) + '\n';
      break;
    }
  auto const separator = TextFields::separator_of(head.c_str(), 2, 3);
  auto const count = std::ssize(TextFields(separator, true).cut(line.c_str()));
  constexpr std::int64_t most = 1000; // for the message
  return count == 2 || count == 3 ? separator : TextFields::separator_of(head.c_str(), 2, most);
}

/// The fields of a line, split at the separator that separator_of_edge() finds.
struct CutLine {
  explicit CutLine(std::string const& line)
      : cutter(separator_of_edge(line), true),
        fields(cutter.cut(line.c_str())) {}
  TextFields cutter;
  std::span<std::string_view const> fields;
};

/// True if the first line has names of columns.
bool is_header(std::vector<DataLine> const& lines) {
  auto const& line = lines.front().text;
  CutLine const cut(line);
  auto const& fields = cut.fields;
  if (fields.size() < 2) return false;
  if (is_header_pair(fields[0], fields[1])) return true;
  if (lines.size() < 2) return false;
  if (std::ranges::all_of(fields, is_word) && skip_ids(lines[1].text.c_str()) != nullptr) return true;
  CutLine const next(lines[1].text);
  return fields.size() == 3 && next.fields.size() == 3 && is_word(fields[2]) && is_number(next.fields[2]);
}

class Probe {
 public:
  Probe(std::filesystem::path const& path, DataLine const& line) : path_(path), line_(line) {}

  /// Finds the columns of a line of numbers. Returns false if its ends are not ids.
  bool take_numbers(EdgeTextProbe& probe) const {
    auto const* const after = skip_ids(line_.text.c_str());
    if (after == nullptr) return false;
    auto const* p = text::skip_separator(after);
    probe.has_dicts = *p == '{';
    std::int64_t count = 2;
    float weight = 0;
    if (probe.has_dicts)
      count += find_dict_weight(p, weight) == DictWeight::absent ? 0 : 1;
    else
      for (; *p != '\n'; p = text::skip_separator(text::field_end(p)))
        ++count;
    require_columns(count);
    probe.num_columns = count;
    return true;
  }

  void take_names(EdgeTextProbe& probe, bool all_names) const {
    CutLine const cut(line_.text);
    auto const& fields = cut.fields;
    require_columns(std::ssize(fields));
    require_ends(fields, all_names);
    probe.has_names = true;
    probe.separator = cut.cutter.separator();
    auto shown = line_.text;
    std::ranges::replace(shown, '\t', ' ');
    probe.first_edge = text::excerpt(shown.c_str());
    probe.num_columns = std::ssize(fields);
    probe.wanted = "an edge is \"source target\"";
    if (fields.size() < 3) return;
    probe.has_dicts = fields[2].starts_with('{');
    float weight = 0;
    if (probe.has_dicts)
      probe.num_columns = find_dict_weight(fields[2], weight) == DictWeight::absent ? 2 : 3;
    else if (!is_number(fields[2]))
      fail(fmt::format("\"{}\" has names in place of vertex ids; --format triples reads lines "
                       "\"head relation tail\"",
                       excerpt()));
    if (probe.num_columns < 3) return;
    probe.weight = 2;
    probe.wanted = "an edge is \"source target weight\"";
  }

 private:
  void require_columns(std::int64_t count) const {
    if (count != 2 && count != 3)
      fail(
          fmt::format("\"{}\" has {} columns; an edge list has \"source target\" or \"source target weight\"",
                      excerpt(), count));
  }
  void require_ends(std::span<std::string_view const> fields, bool all_names) const {
    if (all_names) return;
    for (std::size_t i = 0; i < 2; ++i) {
      auto const* const which = i == 0 ? "source" : "target";
      auto const& field = fields[i];
      if (is_number(field) && is_number(fields[1 - i]) && field.starts_with('-'))
        fail(fmt::format("negative {} id in \"{}\"", which, excerpt()));
      if (is_number(fields[1 - i]) && !(is_natural(field) && field.size() <= 18))
        fail(fmt::format(
            "the {} is not a vertex id in \"{}\"; \"source target\" in whole numbers is wanted, or "
            "--names, which reads all ends as names",
            which, excerpt()));
    }
  }
  [[nodiscard]] std::string excerpt() const { return text::excerpt(line_.text.c_str()); }
  [[noreturn]] void fail(std::string const& reason) const {
    runtime::throw_user("{}:{}: {}", path_.string(), line_.start.num_lines + 1, reason);
  }

  std::filesystem::path const& path_;
  DataLine const& line_;
};

} // namespace

bool is_header_pair(std::string_view first, std::string_view second) {
  using Pair = std::array<std::string_view, 2>;
  constexpr std::array<Pair, 20> pairs{
      Pair{"source", "target"}, Pair{"source", "dest"},     Pair{"source", "destination"},
      Pair{"src", "dst"},       Pair{"src", "dest"},        Pair{"src", "target"},
      Pair{"from", "to"},       Pair{"head", "tail"},       Pair{"subject", "object"},
      Pair{"start", "end"},     Pair{"sender", "receiver"}, Pair{"node1", "node2"},
      Pair{"id1", "id2"},       Pair{"vertex1", "vertex2"}, Pair{"name1", "name2"},
      Pair{"nodea", "nodeb"},   Pair{"citing", "cited"},    Pair{"cited", "citing"},
      Pair{"parent", "child"},  Pair{"user", "item"}};
  auto const reduced = [](std::string_view field) {
    std::string word;
    for (auto const c : field)
      if (std::isalnum(static_cast<unsigned char>(c)) != 0)
        word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return word;
  };
  auto const a = reduced(first);
  auto const b = reduced(second);
  for (auto const& [from, to] : pairs)
    for (std::string_view const more : {"", "id", "node", "nodeid", "name"})
      if (a.size() == from.size() + more.size() && a.starts_with(from) && a.ends_with(more) &&
          b.size() == to.size() + more.size() && b.starts_with(to) && b.ends_with(more))
        return true;
  return false;
}

DictWeight find_dict_weight(std::string_view dict, float& weight) {
  static constexpr std::string_view blanks = " \t";
  auto const skip_blanks = [](std::string_view rest) {
    rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    return rest;
  };
  for (std::string_view const key : {"'weight'", "\"weight\""})
    for (auto found = dict.find(key); found != std::string_view::npos; found = dict.find(key, found + 1)) {
      auto rest = skip_blanks(dict.substr(found + key.size()));
      if (!rest.starts_with(':')) continue; // a value
      rest = skip_blanks(rest.substr(1));
      auto const opened = rest.starts_with("np.") ? rest.find('(') : std::string_view::npos;
      if (opened != std::string_view::npos) rest.remove_prefix(opened + 1);
      auto const end = rest.find_first_of(opened != std::string_view::npos ? ")" : ",} \t");
      bool const is_read =
          end != std::string_view::npos && read_number(rest.substr(0, end), weight) && std::isfinite(weight);
      return is_read ? DictWeight::number : DictWeight::no_number;
    }
  return DictWeight::absent;
}

std::string_view read_dict_weight(std::string_view dict, bool has_weight, float& weight) {
  auto const found = find_dict_weight(dict, weight);
  if (has_weight) return found == DictWeight::number ? "" : "no finite number follows 'weight'";
  return found == DictWeight::absent ? "" : "the first edge has no 'weight', but there is one";
}

EdgeTextProbe probe_text_edges(std::filesystem::path const& path, bool all_names) {
  auto lines = first_lines(path, 2);
  EdgeTextProbe probe;
  if (lines.empty()) return probe;
  if ((all_names || skip_ids(lines[0].text.c_str()) == nullptr) && is_header(lines)) {
    probe.has_header = true;
    lines.erase(lines.begin());
    if (lines.empty()) return probe;
  }
  probe.start = lines[0].start;
  Probe const line(path, lines[0]);
  if (all_names || !line.take_numbers(probe)) line.take_names(probe, all_names);
  return probe;
}

} // namespace orthant::graph
