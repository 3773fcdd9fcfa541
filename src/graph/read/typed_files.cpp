// SPDX-License-Identifier: Apache-2.0
#include "graph/read/typed_files.hpp"

#include "graph/path_entry.hpp"
#include "graph/text/text_blocks.hpp"
#include "graph/text/text_scanner.hpp"
#include "runtime/error.hpp"
#include "runtime/files/temporary_path.hpp"

#include <algorithm>
#include <fmt/ranges.h>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

namespace orthant::graph {

using runtime::throw_user;

namespace {

namespace fs = std::filesystem;
using Path = fs::path;

/// Names of the folders in `folder`. Skips entries that `is_wanted` does not accept.
template<class IsWanted>
std::vector<std::string> folders_in(Path const& folder, IsWanted const& is_wanted) {
  std::vector<std::string> names;
  if (!has_entry(folder) || !fs::is_directory(folder)) return names;
  for (auto const& name : runtime::folder_entries(folder))
    if (is_wanted(name) && has_entry(folder / name) && fs::is_directory(folder / name)) names.push_back(name);
  return names;
}

/// Splits a folder's name into SOURCE, NAME and TARGET: "a__writes__b" or, in OGB's layout, "a___writes___b".
std::optional<RelationFiles> relation_of(std::string const& folder) {
  for (std::string const separator : {"___", "__"}) {
    auto const first = folder.find(separator);
    if (first == std::string::npos) continue;
    auto const second = folder.find(separator, first + separator.size());
    if (second == std::string::npos || folder.find(separator, second + separator.size()) != std::string::npos)
      continue;
    RelationFiles relation{folder.substr(0, first),
                           folder.substr(first + separator.size(), second - first - separator.size()),
                           folder.substr(second + separator.size())};
    if (!relation.source.empty() && !relation.name.empty() && !relation.target.empty()) return relation;
  }
  return std::nullopt;
}

/// Folders of relations in `folder`, by name: those with a file of edges.
std::vector<RelationFiles> find_relations(Path const& folder) {
  std::vector<RelationFiles> relations;
  for (auto const& name :
       folders_in(folder, [](std::string const& entry) { return relation_of(entry).has_value(); })) {
    auto relation = relation_of(name);
    auto const edges = find_first(folder / name, {"edge_index.npy", "edge.csv.gz", "edge.csv"});
    if (!edges) continue;
    relation->edges = *edges;
    relation->is_text = edges->extension() != ".npy";
    relations.push_back(*relation);
  }
  return relations;
}

/// Throws UserError if a folder of edges does not have the name of a relation, or if two folders belong to the same relation.
void require_relations(Path const& folder, std::vector<RelationFiles> const& relations) {
  auto const seems_one = [](std::string const& name) {
    return name.find("__") != std::string::npos && !relation_of(name);
  };
  for (auto const& name : folders_in(folder, seems_one))
    if (find_first(folder / name, {"edge_index.npy", "edge.csv.gz", "edge.csv"}))
      throw_user("{} has edges, but its name is not SOURCE__NAME__TARGET", (folder / name).string());
  std::set<std::string> names;
  for (auto const& relation : relations)
    if (!names.insert(relation.full_name()).second)
      throw_user("{} has two folders of the relation {}", folder.string(), relation.full_name());
}

/// Throws UserError if the name could not be the name of a folder or part of a line of text.
void require_type_name(std::string const& name, Path const& file) {
  if (!is_folder_name(name) || name.size() > 255 ||
      std::ranges::any_of(name, [](unsigned char c) { return c < ' ' || c == 127; }))
    throw_user("{}: a type of vertices has a name that is not that of a folder", file.string());
}

/// The folder that contains the folders of the relations.
std::optional<Path> find_root(Path const& folder) {
  for (auto const& candidate :
       {folder, folder / "processed", folder / "raw" / "relations", folder / "relations"})
    if (!find_relations(candidate).empty()) return candidate;
  return std::nullopt;
}

/// The two lines of num-node-dict.csv: names of types, and their counts.
std::map<std::string, std::int64_t> read_counts(Path const& path) {
  TextLines lines(path);
  std::array<std::vector<std::string>, 2> rows;
  for (auto& row : rows) {
    auto const* const begin = lines.next();
    if (begin == nullptr) break;
    std::string line(begin, text::line_end(begin));
    while (line.ends_with('\r'))
      line.pop_back();
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');)
      row.push_back(field);
  }
  std::map<std::string, std::int64_t> counts;
  if (rows[0].size() != rows[1].size())
    throw_user("{}: {} names of types and {} counts", path.string(), rows[0].size(), rows[1].size());
  for (std::size_t i = 0; i < rows[0].size(); ++i) {
    auto const& digits = rows[1][i];
    constexpr std::size_t most_digits = 15;
    if (digits.empty() || digits.size() > most_digits ||
        !std::ranges::all_of(digits, [](char c) { return '0' <= c && c <= '9'; }))
      throw_user("{}: \"{}\" is no number of vertices", path.string(), digits);
    if (!counts.emplace(rows[0][i], std::stoll(digits)).second)
      throw_user("{}: the type {} is there twice", path.string(), rows[0][i]);
  }
  return counts;
}

/// The arrays of one type in the layout of PyTorch Geometric.
void find_arrays(Path const& folder, TypeFiles& type) {
  using Kind = SplitFiles::Kind;
  type.feature_npy = find_first(folder, {"x.npy", "feat.npy", "node_feat.npy"});
  type.label_npy =
      find_first(folder, {"y.npy", "labels.npy", "label.npy", "node_label.npy", "node_label_19.npy"});
  for (auto const& [kind, ending] : {std::pair(Kind::masks, "_mask.npy"), {Kind::arrays, "_idx.npy"}}) {
    auto const file = [&](std::string const& part) { return folder / (part + ending); };
    if (!has_entry(file("train"))) continue;
    auto const valid = has_entry(file("val")) ? file("val") : file("valid");
    auto const only_train = !has_entry(valid) && !has_entry(file("test"));
    type.split = {
        kind, "npy", 1, {file("train"), only_train ? Path() : valid, only_train ? Path() : file("test")}};
    return;
  }
}

/// The tables of one type in OGB's layout. `root` has raw/ and split/.
void find_tables(Path const& raw, Path const& splits, std::string const& split, TypeFiles& type) {
  auto const features = raw / "node-feat" / type.name;
  auto const labels = raw / "node-label" / type.name;
  if (has_entry(features)) type.feature_text = find_first(features, {"node-feat.csv.gz", "node-feat.csv"});
  if (has_entry(labels)) type.label_text = find_first(labels, {"node-label.csv.gz", "node-label.csv"});
  auto const folder = splits / split / type.name;
  if (split.empty() || !has_entry(folder)) return;
  auto const list = [&](std::string const& part) {
    auto const plain = folder / (part + ".csv");
    return has_entry(plain) ? plain : folder / (part + ".csv.gz");
  };
  type.split = {SplitFiles::Kind::text, split, 1, {list("train"), list("valid"), list("test")}};
}

} // namespace

std::vector<Path> TypedFiles::all() const {
  auto paths = others;
  for (auto const& relation : relations)
    paths.push_back(relation.edges);
  for (auto const& type : types) {
    for (auto const& path : {type.feature_npy, type.feature_text, type.label_npy, type.label_text})
      if (path) paths.push_back(*path);
    std::ranges::copy_if(type.split.paths, std::back_inserter(paths),
                         [](Path const& path) { return !path.empty(); });
  }
  return paths;
}

bool has_typed_files(std::filesystem::path const& folder) {
  try {
    return fs::is_directory(folder) && find_root(folder).has_value();
  } catch (fs::filesystem_error const& failure) {
    throw_user("cannot read {}: {}", failure.path1().string(), failure.code().message());
  }
}

TypedFiles find_typed_files(Input const& input) {
  auto const& folder = input.path;
  auto const root = find_root(folder);
  if (!root)
    throw_user("{} has no edges of a graph of several types; looked for SOURCE__NAME__TARGET/edge_index.npy "
               "there and in processed/, and for SOURCE___NAME___TARGET/edge.csv[.gz] in raw/relations/",
               folder.string());
  TypedFiles files;
  auto absolute = fs::absolute(folder).lexically_normal();
  if (absolute.filename().empty()) absolute = absolute.parent_path();
  files.name = absolute.filename().string();
  files.relations = find_relations(*root);
  require_relations(*root, files.relations);
  if (std::ssize(files.relations) > most_relations / 2)
    throw_user("{} has {} relations; a graph has at most {}", root->string(), files.relations.size(),
               most_relations / 2);
  std::set<std::string> names;
  for (auto const& relation : files.relations) {
    names.insert(relation.source);
    names.insert(relation.target);
  }
  auto const is_ogb = files.relations.front().is_text;
  auto const raw = is_ogb ? root->parent_path() : *root;
  auto const splits = raw.filename() == "raw" ? raw.parent_path() / "split" : raw / "split";
  std::map<std::string, std::int64_t> counts;
  if (auto const path = find_first(raw, {"num-node-dict.csv.gz", "num-node-dict.csv"})) {
    counts = read_counts(*path);
    files.others.push_back(*path);
  } else if (auto const meta = read_meta(raw); !meta.path.empty()) {
    counts = meta.type_counts;
    files.others.push_back(meta.path);
    if (meta.num_vertices)
      throw_user("{}: num_nodes must have a number for each type of vertices", meta.path.string());
    if (!meta.name.empty()) files.name = meta.name;
  }
  auto const split_names = folders_in(splits, [](std::string const&) { return true; });
  auto split = input.split;
  if (split.empty() && !split_names.empty()) split = split_names.front();
  if (!split.empty() && std::ranges::count(split_names, split) == 0)
    throw_user("{} has no split \"{}\"; it has {}", folder.string(), split,
               split_names.empty() ? std::string("none") : fmt::format("{}", fmt::join(split_names, ", ")));
  for (auto const& [name, count] : counts) {
    require_type_name(name, files.others.front());
    names.insert(name);
  }
  if (std::ssize(names) > most_vertex_types)
    throw_user("{} has {} types of vertices; a graph has at most {}", root->string(), names.size(),
               most_vertex_types);
  for (auto const& name : names) {
    TypeFiles type{name};
    if (auto const found = counts.find(name); found != counts.end())
      type.count.add(found->second, files.others.front().string());
    if (is_ogb)
      find_tables(raw, splits, split, type);
    else if (has_entry(raw / name))
      find_arrays(raw / name, type);
    files.types.push_back(std::move(type));
  }
  return files;
}

} // namespace orthant::graph
