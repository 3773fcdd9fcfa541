// SPDX-License-Identifier: Apache-2.0
//
// Decides whether labels are numbers of classes, names of classes or targets of regression; see docs/store.md.

#include "graph/arrays/npy_streams.hpp"
#include "graph/read/graph_files.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace orthant::graph {

using runtime::Communicator;
using runtime::throw_user;
using runtime::together;

namespace {

constexpr std::int64_t labels_at_once = std::int64_t{1} << 16; // rows

/// Joins the words as "3:red5:green", so that they can be sent as one text.
std::string joined(std::set<std::string> const& words) {
  std::string text;
  for (auto const& word : words)
    text += fmt::format("{}:{}", word.size(), word);
  return text;
}

void add_words(std::string_view text, std::set<std::string>& words) {
  while (!text.empty()) {
    auto const colon = text.find(':');
    auto const length = std::stoull(std::string(text.substr(0, colon)));
    words.emplace(text.substr(colon + 1, length));
    text.remove_prefix(colon + 1 + length);
  }
}

/// The words of all ranks, ascending. Collective.
std::vector<std::string> united(Communicator const& comm, std::set<std::string> const& mine) {
  std::string all;
  runtime::gather_text(comm, joined(mine), [&](std::string_view piece) { all += piece; });
  std::set<std::string> words;
  if (comm.is_root()) {
    add_words(all, words);
    all = joined(words);
  }
  runtime::broadcast_text(comm, all, 0);
  add_words(all, words);
  return {words.begin(), words.end()};
}

struct FoundNumbers {
  std::int64_t largest = -1;
  std::vector<std::int64_t> numbers; // distinct numbers, ascending; empty if there are too many
};

/// Reads all labels once. Numbers from `limit` on are reported as mistakes. Collective.
FoundNumbers scan_numbers(Communicator const& comm, Opener& opener, std::int64_t limit) {
  std::set<std::int64_t> seen;
  bool are_few = true;
  FoundNumbers found;
  together(comm, [&] {
    opener.build_labels(limit);
    if (opener.parts.labels.kind != LabelKind::single) return;
    auto const stream = opener.parts.labels.open(labels_at_once);
    for (LabelBatch batch; stream->next(batch);)
      for (auto const label : batch.classes) {
        found.largest = std::max(found.largest, label);
        if (label >= 0 && are_few) seen.insert(label);
        are_few = std::ssize(seen) <= most_class_names;
      }
  });
  found.largest = runtime::all_reduced(comm, found.largest, runtime::Reduction::max);
  if (runtime::all_reduced(comm, std::int64_t{are_few ? 0 : 1}, runtime::Reduction::max) > 0) return found;
  std::set<std::string> words;
  for (auto const number : seen)
    words.insert(fmt::format("{}", number));
  for (auto const& word : united(comm, words))
    found.numbers.push_back(std::stoll(word));
  std::ranges::sort(found.numbers);
  if (std::ssize(found.numbers) > most_class_names) found.numbers.clear();
  return found;
}

/// The names in classes.csv: a first line of names, then a line "id,name" per class, in the order of the ids.
std::vector<std::string> read_class_list(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  std::string const text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.good() && !file.eof()) throw_user("cannot read {}", path.string());
  std::vector<std::vector<std::string>> lines(1, {std::string()});
  bool is_quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    auto const c = text[at];
    if (c == '"' && is_quoted && at + 1 < text.size() && text[at + 1] == '"')
      lines.back().back() += text[at++];
    else if (c == '"')
      is_quoted = !is_quoted;
    else if (c == ',' && !is_quoted)
      lines.back().emplace_back();
    else if (c == '\n' && !is_quoted)
      lines.push_back({std::string()});
    else if (c != '\r' || is_quoted)
      lines.back().back() += c;
  }
  if (is_quoted) throw_user("{}: a quote is open at the end of the file", path.string());
  while (!lines.empty() && lines.back() == std::vector<std::string>(1))
    lines.pop_back();
  std::vector<std::string> names;
  for (std::size_t line = 1; line < lines.size(); ++line) {
    auto const& fields = lines[line];
    if (fields.size() != 2 || fields[0] != fmt::format("{}", names.size()) || fields[1].empty())
      throw_user("{}: line {} is not \"{},NAME\": the first line must be id,class, then one per class from 0",
                 path.string(), line + 1, names.size());
    names.push_back(fields[1]);
  }
  if (names.empty() || std::ssize(names) > most_class_names)
    throw_user("{} names {} classes; 1 to {} can be named", path.string(), names.size(), most_class_names);
  return names;
}

} // namespace

std::optional<FoundLabels> find_array_labels(Communicator const& comm, OpenArray const& array, Range rows,
                                             bool are_targets, std::int64_t num_declared) {
  auto const head = together(comm, array);
  auto const file = std::filesystem::path(head.name()).filename().string();
  if (head.is_text() && are_targets)
    throw_user("--targets: {} has texts, which are names of classes: leave the option out", head.name());
  if (head.is_text()) {
    auto const names = std::make_shared<std::vector<std::string> const>(
        united(comm, together(comm, [&] { return read_npy_names(array(), rows); })));
    if (std::ssize(*names) > most_class_names)
      throw_user("{} has {} different texts, too many for names of classes", head.name(), names->size());
    return FoundLabels{
        {LabelKind::single, std::ssize(*names),
         [=](std::int64_t batch_rows) { return read_npy_named_classes(array, rows, names, batch_rows); },
         *names},
        fmt::format("{} has texts, which are the names of {} classes", file, names->size())};
  }
  auto const is_real = are_targets || (head.is_real() && num_declared == 0 &&
                                       together(comm, [&] { return has_fractions(array(), rows); }));
  if (runtime::all_reduced(comm, std::int64_t{is_real ? 1 : 0}, runtime::Reduction::max) == 0)
    return std::nullopt;
  return FoundLabels{{LabelKind::real, head.num_columns(),
                      [=](std::int64_t batch_rows) { return read_npy_targets(array, rows, batch_rows); }},
                     fmt::format("{} has {}targets of regression", file,
                                 are_targets ? "" : "numbers that are not integers: ")};
}

std::string Opener::find_labels(Communicator const& comm) {
  auto const declared = input.random_labels > 0 ? std::int64_t{0} : files.meta.num_classes.value_or(0);
  auto const array = input.random_labels > 0 || files.label_text ? OpenArray() : attributes.labels;
  if (input.labels_are_targets && !array)
    throw_user("--targets: {} has no labels in .npy, whose numbers could be targets of regression",
               input.path.string());
  if (array) {
    auto const rows = npy_share(together(comm, array), parts.num_vertices, share);
    if (auto found = find_array_labels(comm, array, rows, input.labels_are_targets, declared)) {
      parts.labels = std::move(found->part);
      return found->note + (files.class_list ? "; classes.csv is not used" : "");
    }
  }
  return find_classes(comm, declared);
}

/// Implements find_labels() for integer labels and for random ones.
std::string Opener::find_classes(Communicator const& comm, std::int64_t declared) {
  if (declared > 0 || input.random_labels > 0) {
    together(comm, [&] { build_labels(declared); });
    if (files.class_list && input.random_labels == 0 && parts.labels.kind == LabelKind::single)
      name_classes(together(comm, [&] { return read_class_list(*files.class_list); }));
    return {};
  }
  auto const found = scan_numbers(comm, *this, most_columns);
  if (parts.labels.kind != LabelKind::single) return {};
  auto num_classes = found.largest + 1;
  if (files.class_list) {
    auto const names = together(comm, [&] { return read_class_list(*files.class_list); });
    together(comm, [&] { build_labels(std::max(num_classes, std::ssize(names))); });
    name_classes(names);
    return {};
  }
  constexpr std::int64_t least_name = 10; // below it, gaps in the numbers are classes without vertices
  auto const may_be_names = attributes.labels && !files.label_text && !files.csv;
  if (may_be_names && 2 * std::ssize(found.numbers) < num_classes && found.largest >= least_name &&
      !found.numbers.empty()) {
    auto const numbers = std::make_shared<std::vector<std::int64_t> const>(found.numbers);
    auto const open = parts.labels.open;
    parts.labels = {LabelKind::single, std::ssize(*numbers),
                    [=](std::int64_t batch_rows) { return renumbered(open(batch_rows), numbers); }};
    for (auto const number : *numbers)
      parts.labels.names.push_back(fmt::format("{}", number));
    return fmt::format("labels are numbers with gaps, up to {}: they are the names of {} classes; "
                       "\"num_classes\": {} in meta.json keeps them as numbers",
                       found.largest, numbers->size(), num_classes);
  }
  // More classes than vertices are most likely a mistake in the file.
  if (num_classes > parts.num_vertices)
    num_classes = scan_numbers(comm, *this, parts.num_vertices).largest + 1;
  together(comm, [&] { build_labels(num_classes); });
  return {};
}

void Opener::name_classes(std::vector<std::string> names) {
  if (std::ssize(names) != parts.labels.num_classes)
    throw_user("{} names {} classes, but there are {}", files.class_list->string(), names.size(),
               parts.labels.num_classes);
  parts.labels.names = std::move(names);
}

} // namespace orthant::graph
