// SPDX-License-Identifier: Apache-2.0
#include "graph/read/csv_data_set.hpp"

#include "graph/path_entry.hpp"
#include "graph/text/text_blocks.hpp"
#include "graph/text/text_scanner.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text::is_blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && text::is_blank(text.back()))
    text.remove_suffix(1);
  return text;
}

std::string without_quotes(std::string_view value) {
  bool const is_quoted =
      value.size() >= 2 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front();
  return std::string(is_quoted ? value.substr(1, value.size() - 2) : value);
}

/// The line without its comment. A '#' begins a comment at the beginning of a line or after a blank, but not in quotes.
std::string_view without_comment(std::string_view line) {
  char quote = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    bool const is_begin = at == 0 || text::is_blank(line[at - 1]);
    if (quote != 0)
      quote = line[at] == quote ? '\0' : quote;
    else if (is_begin && (line[at] == '"' || line[at] == '\''))
      quote = line[at];
    else if (is_begin && line[at] == '#')
      return line.substr(0, at);
  }
  return line;
}

/// Lines "key: value" at the beginning of the file and in the items of its lists.
class YamlLines {
 public:
  using Values = std::map<std::string, std::string>;

  explicit YamlLines(std::filesystem::path const& path) {
    TextLines lines(path);
    while (auto const* const line = lines.next())
      take(lines, line);
  }

  Values top;
  std::map<std::string, std::vector<Values>> lists;

 private:
  void take(TextLines const& lines, char const* line) {
    auto content = without_comment({line, static_cast<std::size_t>(text::line_end(line) - line)});
    auto const indent = content.find_first_not_of(' ');
    content = trimmed(content);
    if (content.empty() || content == "---") return;
    bool const is_item = content.starts_with("- ");
    if (is_item) content = trimmed(content.substr(2));
    auto const colon = content.find(": ");
    bool const ends = content.ends_with(':');
    bool const is_pair =
        (colon != std::string_view::npos || ends) && content.front() != '[' && content.front() != '{';
    auto const fail = [&] {
      lines.fail(
          fmt::format("\"{}\" is not understood; lines \"key: value\" are wanted", text::excerpt(line)));
    };
    if (is_item && !is_pair && !inner_.empty()) { // the item of an inner list, such as etype
      auto& items = lists[list_].back()[inner_];
      items += (items.empty() ? "" : ",") + without_quotes(content);
      return;
    }
    if (!is_pair) fail();
    auto const key = without_quotes(
        trimmed(content.substr(0, ends && colon == std::string_view::npos ? content.size() - 1 : colon)));
    auto const value = ends && colon == std::string_view::npos
                           ? std::string()
                           : without_quotes(trimmed(content.substr(colon + 1)));
    if (indent == 0 && !is_item) {
      if (key == "graph_data") lines.fail("a data set of many graphs (graph_data); a single graph is wanted");
      list_ = value.empty() ? key : std::string();
      inner_.clear();
      if (!list_.empty())
        lists[list_];
      else if (!top.try_emplace(key, value).second)
        lines.fail(fmt::format("{} is given twice", key));
      return;
    }
    if (list_.empty()) fail();
    auto& items = lists[list_];
    if (is_item) items.emplace_back();
    if (items.empty()) fail();
    if (!items.back().try_emplace(key, value).second) lines.fail(fmt::format("{} is given twice", key));
    inner_ = value.empty() ? key : std::string();
  }

  std::string list_;  // name of the list to which the lines belong
  std::string inner_; // name of the list within an item to which the lines belong
};

std::string value_of(YamlLines::Values const& values, std::string const& key, std::string const& otherwise) {
  auto const found = values.find(key);
  return found == values.end() ? otherwise : found->second;
}

/// The items of a list "[a, 'b', c]", with or without its brackets.
std::vector<std::string> words_of(std::string_view list) {
  if (list.starts_with('[') && list.ends_with(']')) list = list.substr(1, list.size() - 2);
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= list.size();) {
    auto const end = std::min(list.find(',', begin), list.size());
    words.push_back(without_quotes(trimmed(list.substr(begin, end - begin))));
    begin = end + 1;
  }
  return words;
}

} // namespace

std::optional<CsvMeta> read_csv_meta(std::filesystem::path const& folder) {
  auto const path = folder / "meta.yaml";
  if (!has_entry(path)) return std::nullopt;
  YamlLines yaml(path);
  CsvMeta meta;
  meta.path = path;
  auto const separator = value_of(yaml.top, "separator", ",");
  if (separator == "\\t")
    meta.separator = '\t';
  else if (separator.size() == 1 && std::string_view(",;|\t ").find(separator[0]) != std::string_view::npos)
    meta.separator = separator[0];
  else
    runtime::throw_user("{}: the separator \"{}\" is not read; it must be one of , ; | a tab or a blank",
                        path.string(), separator);
  auto const items_of = [&](std::string const& list,
                            char const* what) -> std::vector<YamlLines::Values> const& {
    if (yaml.top.contains(list))
      runtime::throw_user(
          "{}: {} has a value in its own line; lines \"- file_name: FILE\" below it are wanted",
          path.string(), list);
    auto const& items = yaml.lists[list];
    if (items.empty()) runtime::throw_user("{}: {} has no tables of {}", path.string(), list, what);
    for (auto const& item : items)
      if (!item.contains("file_name"))
        runtime::throw_user("{}: {} has a table without file_name", path.string(), list);
    return items;
  };
  for (auto const& item : items_of("node_data", "vertices")) {
    auto& table = meta.vertices.emplace_back();
    table.path = folder / item.at("file_name");
    table.type = value_of(item, "ntype", table.type);
    table.id = value_of(item, "node_id_field", table.id);
    table.graph = value_of(item, "graph_id_field", table.graph);
  }
  for (auto const& item : items_of("edge_data", "edges")) {
    auto& table = meta.edges.emplace_back();
    table.path = folder / item.at("file_name");
    table.source = value_of(item, "src_id_field", table.source);
    table.target = value_of(item, "dst_id_field", table.target);
    if (!item.contains("etype")) continue;
    auto const words = words_of(item.at("etype"));
    if (words.size() != table.type.size())
      runtime::throw_user("{}: the etype \"{}\" is not [SOURCE, NAME, TARGET]", path.string(),
                          text::excerpt((item.at("etype") + '\n').c_str()));
    std::ranges::copy(words, table.type.begin());
  }
  return meta;
}

} // namespace orthant::graph
