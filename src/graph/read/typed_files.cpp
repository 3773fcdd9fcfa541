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

/// Folders of relations in `folder`, by name: those with a file of edges.
std::vector<RelationFiles> find_relations(Path const& folder) {
  std::vector<RelationFiles> relations;
  for (auto const& name :
       folders_in(folder, [](std::string const& entry) { return detail::relation_of(entry).has_value(); })) {
    auto relation = detail::relation_of(name);
    auto const edges = find_first(folder / name, {"edge_index.npy", "edge.csv.gz", "edge.csv"});
    if (!edges) continue;
    relation->edges.path = *edges;
    relation->is_text = edges->extension() != ".npy";
    relations.push_back(*relation);
  }
  return relations;
}

/// Throws UserError if a folder of edges does not have the name of a relation.
void require_relations(Path const& folder) {
  auto const seems_one = [](std::string const& name) {
    return name.find("__") != std::string::npos && !detail::relation_of(name);
  };
  for (auto const& name : folders_in(folder, seems_one))
    if (find_first(folder / name, {"edge_index.npy", "edge.csv.gz", "edge.csv"}))
      throw_user("{} has edges, but its name is not SOURCE__NAME__TARGET", (folder / name).string());
}

/// Throws UserError if the name could not be the name of a folder or part of a line of text.
void require_type_name(std::string const& name, Path const& file) {
  if (!is_folder_name(name) || name.size() > 255 ||
      std::ranges::any_of(name, [](unsigned char c) { return c < ' ' || c == 127; }))
    throw_user("{}: a type of vertices has a name that is not that of a folder", file.string());
}

/// The folder that contains the folders of the relations, or OGB's archive of all of them.
std::optional<Path> find_root(Path const& folder) {
  for (auto const& candidate : {folder, folder / "raw"})
    if (has_entry(candidate / detail::edge_archive)) return candidate;
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
  auto const place_of = [](std::optional<Path> const& path) {
    return path ? std::optional<ArrayPlace>({*path, {}}) : std::nullopt;
  };
  type.feature_npy = place_of(find_first(folder, {"x.npy", "feat.npy", "node_feat.npy"}));
  type.label_npy = place_of(
      find_first(folder, {"y.npy", "labels.npy", "label.npy", "node_label.npy", "node_label_19.npy"}));
  type.names = find_first(folder, {"names.npy"});
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

/// The tables of one type in OGB's layout.
void find_tables(Path const& raw, TypeFiles& type) {
  auto const features = raw / "node-feat" / type.name;
  auto const labels = raw / "node-label" / type.name;
  if (has_entry(features)) type.feature_text = find_first(features, {"node-feat.csv.gz", "node-feat.csv"});
  if (has_entry(labels)) type.label_text = find_first(labels, {"node-label.csv.gz", "node-label.csv"});
}

/// The lists of vertices of one type in OGB's layout: split/NAME/TYPE/train.csv.gz ..
void find_lists(Path const& splits, std::string const& split, TypeFiles& type) {
  auto const folder = splits / split / type.name;
  if (split.empty()) return;
  if (!has_entry(folder)) {
    if (has_entry(splits / split / "split_dict.pt") && type.has_labels())
      throw_user("{} is a file of PyTorch, which is not read: write its lists to {}/train.csv, valid.csv and "
                 "test.csv, or give --random-split",
                 (splits / split / "split_dict.pt").string(), folder.string());
    return;
  }
  auto const list = [&](std::string const& part) {
    auto const plain = folder / (part + ".csv");
    return has_entry(plain) ? plain : folder / (part + ".csv.gz");
  };
  type.split = {SplitFiles::Kind::text, split, 1, {list("train"), list("valid"), list("test")}};
}

/// The split to use: `wanted`, or the first by name.
std::string choose_split(Input const& input, Path const& splits) {
  auto const names = folders_in(splits, [](std::string const&) { return true; });
  auto const& wanted = input.split;
  if (wanted.empty()) return names.empty() ? std::string() : names.front();
  if (std::ranges::count(names, wanted) == 0)
    throw_user("{} has no split \"{}\"; it has {}", input.path.string(), wanted,
               names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", ")));
  return wanted;
}

/// Numbers of vertices by type, from the small files of the folder that give them. Sets the name of the graph.
std::map<std::string, std::int64_t> find_counts(Path const& raw, TypedFiles& files) {
  if (auto const archive = find_first(raw, {"num_nodes_dict.npz"})) {
    files.others.push_back(*archive);
    return detail::read_archive_counts(*archive, files);
  }
  if (auto const path = find_first(raw, {"num-node-dict.csv.gz", "num-node-dict.csv"})) {
    files.others.push_back(*path);
    return read_counts(*path);
  }
  auto const meta = read_meta(raw);
  if (meta.path.empty()) return {};
  files.others.push_back(meta.path);
  if (meta.num_vertices)
    throw_user("{}: num_nodes must have a number for each type of vertices", meta.path.string());
  if (!meta.name.empty()) files.name = meta.name;
  return meta.type_counts;
}

/// Sets types and relations to the tables of a CSVDataset. Lists of a split that the input names come before masks.
void find_csv_tables(Input const& input, CsvMeta const& meta, TypedFiles& files) {
  auto const splits = input.path / "split";
  auto const split = input.split.empty() ? std::string() : choose_split(input, splits);
  files.others.push_back(meta.path);
  for (auto const& vertices : meta.vertices) {
    require_type_name(vertices.type, meta.path);
    TypeFiles type{vertices.type};
    type.table = read_csv_columns(vertices, meta.separator, files.notes);
    if (type.table->has_split()) type.split = {SplitFiles::Kind::table, "masks"};
    find_lists(splits, split, type);
    files.types.push_back(std::move(type));
  }
  std::ranges::sort(files.types, {}, &TypeFiles::name);
  for (std::size_t t = 1; t < files.types.size(); ++t)
    if (files.types[t].name == files.types[t - 1].name)
      throw_user("{}: two tables of vertices have the ntype {}", meta.path.string(), files.types[t].name);
  for (auto const& edges : meta.edges) {
    auto const& [source, name, target] = edges.type;
    require_type_name(name, meta.path);
    for (auto const& end : {source, target})
      if (std::ranges::count(files.types, end, &TypeFiles::name) == 0)
        throw_user("{}: the etype [{}, {}, {}] needs a table of vertices with the ntype {}",
                   meta.path.string(), source, name, target, end);
    RelationFiles relation{source, name, target, {edges.path, {}}};
    relation.probe = probe_csv_edges(edges, meta.separator, false, files.notes);
    files.relations.push_back(std::move(relation));
  }
}

/// Finds the files of all layouts with a folder or an archive of relations.
void find_in_root(Input const& input, Path const& root, TypedFiles& files) {
  auto const is_archive = has_entry(root / detail::edge_archive);
  files.relations = is_archive ? detail::find_archived_relations(root, files) : find_relations(root);
  if (!is_archive) require_relations(root);
  auto const is_text = files.relations.front().is_text;
  auto const raw = is_text ? root.parent_path() : root;
  auto const splits = raw.filename() == "raw" ? raw.parent_path() / "split" : raw / "split";
  auto const split = choose_split(input, splits);
  auto const counts = find_counts(raw, files);
  std::set<std::string> names;
  for (auto const& relation : files.relations) {
    names.insert(relation.source);
    names.insert(relation.target);
  }
  for (auto const& [name, count] : counts)
    names.insert(name);
  for (auto const& name : names) {
    require_type_name(name, counts.contains(name) ? files.others.back() : root);
    TypeFiles type{name};
    if (auto const found = counts.find(name); found != counts.end())
      type.count.add(found->second, files.others.back().string());
    if (is_text)
      find_tables(raw, type);
    else if (!is_archive && has_entry(raw / name))
      find_arrays(raw / name, type);
    files.types.push_back(std::move(type));
  }
  if (is_archive) detail::find_archived_arrays(raw, files);
  if (is_text || is_archive)
    for (auto& type : files.types)
      find_lists(splits, split, type);
}

} // namespace

std::vector<Path> TypedFiles::all() const {
  auto paths = others;
  for (auto const& relation : relations)
    paths.push_back(relation.edges.path);
  for (auto const& type : types) {
    for (auto const& place : {type.feature_npy, type.label_npy})
      if (place) paths.push_back(place->path);
    for (auto const& path : {type.feature_text, type.label_text, type.names})
      if (path) paths.push_back(*path);
    if (type.table) paths.push_back(type.table->path);
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
  TypedFiles files;
  auto absolute = fs::absolute(folder).lexically_normal();
  if (absolute.filename().empty()) absolute = absolute.parent_path();
  files.name = absolute.filename().string();
  auto const root = find_root(folder);
  if (root)
    find_in_root(input, *root, files);
  else if (auto const meta = read_csv_meta(folder))
    find_csv_tables(input, *meta, files);
  else
    throw_user("{} has no edges of a graph of several types; looked for SOURCE__NAME__TARGET/edge_index.npy "
               "there and in processed/, for SOURCE___NAME___TARGET/edge.csv[.gz] in raw/relations/, for "
               "raw/{}, and for meta.yaml",
               folder.string(), detail::edge_archive);
  std::ranges::sort(files.relations, {}, &RelationFiles::full_name);
  for (std::size_t r = 1; r < files.relations.size(); ++r)
    if (files.relations[r].full_name() == files.relations[r - 1].full_name())
      throw_user("{}: the relation {} is there twice", folder.string(), files.relations[r].full_name());
  if (std::ssize(files.relations) > most_relations / 2)
    throw_user("{} has {} relations; a graph has at most {}", folder.string(), files.relations.size(),
               most_relations / 2);
  if (std::ssize(files.types) > most_vertex_types)
    throw_user("{} has {} types of vertices; a graph has at most {}", folder.string(), files.types.size(),
               most_vertex_types);
  return files;
}

} // namespace orthant::graph
