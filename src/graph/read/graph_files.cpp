// SPDX-License-Identifier: Apache-2.0
#include "graph/read/graph_files.hpp"

#include "graph/path_entry.hpp"
#include "graph/write/output_files.hpp"
#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/files/temporary_path.hpp"

#include <algorithm>
#include <fmt/ranges.h>

namespace orthant::graph {

using runtime::throw_user;

namespace fs = std::filesystem;

namespace {

using Path = GraphFiles::Path;
using Topology = GraphFiles::Topology;

/// `folder/name` or `folder/name.gz`.
std::optional<Path> find_text(Path const& folder, std::string const& name) {
  for (auto const& candidate : {name + ".gz", name})
    if (has_entry(folder / candidate)) return folder / candidate;
  return std::nullopt;
}

std::optional<Path> find_file(Path const& folder, std::string const& name) {
  return has_entry(folder / name) ? std::optional(folder / name) : std::nullopt;
}

/// Looks for a topology in `folder` in the layout of OGB's raw/. Returns true if it exists.
bool find_ogb(Path const& folder, GraphFiles& files) {
  if (auto const text = find_text(folder, "edge.csv")) {
    files.topology = Topology::ogb_text;
    files.edges = *text;
    files.edge_weights = find_text(folder, "edge-weight.csv");
  } else if (auto const archive = find_file(folder, "data.npz")) {
    files.topology = Topology::ogb_npz;
    files.edges = *archive;
  } else {
    return false;
  }
  files.num_nodes = find_text(folder, "num-node-list.csv");
  files.num_edges = find_text(folder, "num-edge-list.csv");
  files.feature_text = find_text(folder, "node-feat.csv");
  files.label_text = find_text(folder, "node-label.csv");
  auto const label_archive = find_file(folder, "node-label.npz");
  if (!files.label_text) files.label_npz = label_archive;
  return true;
}

bool find_npy_edges(Path const& folder, GraphFiles& files) {
  auto const edges = find_file(folder, "edge_index.npy");
  if (!edges) return false;
  files.topology = Topology::npy;
  files.edges = *edges;
  files.edge_weights = find_first(folder, {"edge_weight.npy", "edge_attr.npy"});
  return true;
}

/// Looks for NAME.csv, NAME.tsv or NAME.txt.
bool find_table(Path const& folder, std::string const& name, Topology topology, GraphFiles& files) {
  std::optional<Path> found;
  for (auto const* const ending : {".tsv", ".txt", ".csv"})
    if (!found) found = find_text(folder, name + ending);
  if (!found) return false;
  files.topology = topology;
  files.edges = *found;
  return true;
}

/// The only file in the folder with one of these endings.
std::optional<Path> find_single(Path const& folder, std::initializer_list<std::string_view> endings,
                                std::string_view advice = "name one") {
  std::vector<Path> found;
  for (auto const& name : runtime::folder_entries(folder))
    for (auto const ending : endings)
      if (name.ends_with(ending)) found.push_back(folder / name);
  if (found.size() > 1)
    throw_user("{} holds {} graphs, {} and {} among them: {}", folder.string(), found.size(),
               found[0].filename().string(), found[1].filename().string(), advice);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

/// Looks for NAME_graph.npz and NAME_data.npz, in which the Deep Graph Library publishes Reddit.
bool find_dgl_archives(Path const& folder, GraphFiles& files) {
  constexpr std::string_view ending = "_graph.npz";
  auto const graph = find_single(folder, {ending}, "leave one in the folder");
  if (!graph) return false;
  auto const file = graph->filename().string();
  files.topology = Topology::scipy_npz;
  files.edges = *graph;
  files.dgl_data = find_file(folder, file.substr(0, file.size() - ending.size()) + "_data.npz");
  return true;
}

/// The lists or masks of a split if at least one of them exists. If only train exists, the other parts are empty.
/// In all other cases the names of missing files are kept, so that opening them reports what is missing.
std::optional<GraphFiles::Lists> find_split_arrays(Path const& folder, std::string const& kind) {
  auto const file = [&](char const* part) { return part + ("_" + kind + ".npy"); };
  auto const train = file("train");
  auto const test = file("test");
  auto const val = file("val");
  auto const valid = file("valid");
  if (!find_first(folder, {train.c_str(), valid.c_str(), val.c_str(), test.c_str()})) return std::nullopt;
  auto const middle = find_first(folder, {valid.c_str(), val.c_str()});
  if (!middle && !has_entry(folder / test)) return GraphFiles::Lists{folder / train, {}, {}};
  return GraphFiles::Lists{folder / train, middle.value_or(folder / valid), folder / test};
}

/// Takes the attributes that raw/ does not have from a folder of .npy files.
void add_npy_attributes(Path const& folder, GraphFiles& files) {
  if (files.dgl_data) return;
  bool const has_features = files.feature_text || files.feature_npy || files.sparse_npy;
  if (!has_features) {
    files.feature_npy = find_first(folder, {"x.npy", "feat.npy"});
    auto const parts = {"x_indptr.npy", "x_indices.npy", "x_data.npy", "x_shape.npy"};
    if (!files.feature_npy && find_first(folder, parts)) files.sparse_npy = folder;
  }
  if (!files.label_text && !files.label_npz && !files.label_npy)
    files.label_npy = find_first(folder, {"labels.npy", "y.npy", "label.npy"});
  if (files.split_npy || files.split_masks) return;
  files.split_npy = find_split_arrays(folder, "idx");
  if (!files.split_npy) files.split_masks = find_split_arrays(folder, "mask");
}

/// The lists of split/NAME. The name of a missing list is kept, so that opening it reports that it does not exist.
GraphFiles::Lists text_lists(Path const& folder) {
  auto const list = [&](std::string const& name) {
    return find_text(folder, name).value_or(folder / (name + ".gz"));
  };
  return {list("train.csv"), list("valid.csv"), list("test.csv")};
}

void choose_split(Path const& folder, std::string const& wanted, GraphFiles& files) {
  std::vector<std::string> names;
  if (has_entry(folder / "split"))
    for (auto const& name : runtime::folder_entries(folder / "split"))
      if (has_entry(folder / "split" / name) && fs::is_directory(folder / "split" / name))
        names.push_back(name);
  auto const is_listed = [&](std::string const& name) {
    return std::ranges::find(names, name) != names.end();
  };

  bool const has_arrays = files.split_npy || files.split_masks;
  auto name = wanted;
  if (name.empty()) {
    auto const named = std::ranges::find_if(files.meta.splits, is_listed);
    if (named != files.meta.splits.end())
      name = *named;
    else if (!names.empty())
      name = names.front();
  } else if (!is_listed(name)) {
    bool const is_npy_split = has_arrays && !files.meta.splits.empty() && files.meta.splits.front() == name;
    if (!is_npy_split)
      throw_user("{} has no split \"{}\"; it has {}", folder.string(), name,
                 names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", ")));
  }
  if (is_listed(name)) {
    files.split_text = text_lists(folder / "split" / name);
    files.split_name = name;
  } else if (has_arrays) {
    files.split_name = !files.meta.splits.empty() ? files.meta.splits.front() : "npy";
  }
}

GraphFiles find_in_folder(Input const& input) {
  using enum InputFormat;
  auto const format = input.format;
  // The folder may itself be the raw/ or npy/ of a data set: meta.json and split/ are then in its parent folder.
  auto root = fs::absolute(input.path).lexically_normal();
  if (root.filename().empty()) root = root.parent_path();
  auto const kind = root.filename().string();
  if ((kind == "raw" || kind == "npy") && !has_entry(root / "meta.json") &&
      (has_entry(root.parent_path() / "meta.json") || has_entry(root.parent_path() / "split")))
    root = root.parent_path();

  require_complete_graph(root);
  GraphFiles files;
  files.meta = read_meta(root);
  if (!files.meta.type_counts.empty())
    throw_user("{}: num_nodes has types of vertices, but there is no folder SOURCE__NAME__TARGET with edges",
               files.meta.path.string());
  bool const may_be_ogb = (format == automatic && kind != "npy") || format == ogb;
  bool const may_be_npy = format == automatic || format == npy;
  bool is_found = may_be_ogb && (find_ogb(input.path / "raw", files) || find_ogb(input.path, files));
  if (!is_found && (format == automatic || format == triples))
    is_found = find_table(input.path, "triples", Topology::triples, files);
  if (!is_found && may_be_npy)
    is_found = find_npy_edges(input.path, files) || find_npy_edges(input.path / "npy", files);
  if (!is_found && format == automatic && (files.csv = read_csv_meta(input.path))) {
    files.topology = Topology::csv_data_set;
    files.edges = files.csv->edges[0].path;
    is_found = true;
  }
  if (!is_found && (format == automatic || format == edgelist))
    is_found = find_table(input.path, "edges", Topology::edge_list, files);
  auto const use_single = [&](Topology topology, std::initializer_list<std::string_view> endings) {
    auto const single = find_single(input.path, endings);
    if (!single) return false;
    files.topology = topology;
    files.edges = *single;
    return true;
  };
  if (!is_found && (format == automatic || format == mtx))
    is_found = use_single(Topology::matrix_market, {".mtx", ".mtx.gz"});
  if (!is_found && (format == automatic || format == metis))
    is_found = use_single(Topology::metis, {".graph", ".graph.gz"});
  if (!is_found && (format == automatic || format == edgelist))
    is_found = use_single(Topology::edge_list,
                          {".txt", ".txt.gz", ".tsv", ".tsv.gz", ".el", ".el.gz", ".edges", ".edges.gz"});
  if (!is_found && may_be_npy) is_found = find_dgl_archives(input.path, files);
  if (!is_found)
    throw_user(
        "{} is not a graph in a known format; looked for raw/edge.csv[.gz], raw/data.npz, edge.csv[.gz], "
        "data.npz, triples.tsv, edge_index.npy, npy/edge_index.npy, meta.yaml, edges.csv, one *.mtx[.gz], "
        "one "
        "*.graph[.gz], one *.txt, *.tsv, *.el or *.edges[.gz], one *_graph.npz",
        input.path.string());

  if (!files.csv)
    for (auto const& folder : {input.path, root / "npy"})
      add_npy_attributes(folder, files);
  files.class_list = find_first(root, {"classes.csv"});
  choose_split(root, input.split, files);
  if (files.meta.name.empty()) files.meta.name = root.filename().string();
  return files;
}

GraphFiles find_single_file(Input const& input) {
  using enum InputFormat;
  static_cast<void>(runtime::detail::open_to_read(input.path));
  GraphFiles files;
  files.edges = input.path;
  files.meta.name = input.path.filename().string();
  auto const is_called = [&](std::string_view ending) { return files.meta.name.ends_with(ending); };
  if (input.format == npy || input.format == ogb)
    throw_user("{} is a file; the format {} is a folder", input.path.string(),
               input.format == npy ? "npy" : "ogb");
  if (is_called(".npy") || is_called(".npz"))
    throw_user("{} is one array file; name the folder that holds it", input.path.string());
  if (is_called(".parquet") || is_called(".feather") || is_called(".arrow"))
    throw_user("{} is a table of Arrow, which is not read: orthant.write() of the Python package makes a "
               "folder of the table that "
               "pyarrow reads (docs/python.md)",
               input.path.string());
  if (is_called(".h5") || is_called(".hdf5"))
    throw_user(
        "{} looks like a graph store, which needs no partitioning; give a graph in its original format",
        input.path.string());
  bool const is_mtx =
      input.format == mtx || (input.format == automatic &&
                              (is_called(".mtx") || is_called(".mtx.gz") || is_matrix_market(input.path)));
  bool const is_metis =
      input.format == metis || (input.format == automatic && (is_called(".graph") || is_called(".graph.gz")));
  files.topology = is_mtx                    ? Topology::matrix_market
                   : is_metis                ? Topology::metis
                   : input.format == triples ? Topology::triples
                                             : Topology::edge_list;
  if (!input.split.empty()) throw_user("{} is a file and has no splits", input.path.string());
  return files;
}

} // namespace

InputFormat parse_input_format(std::string_view word) {
  using enum InputFormat;
  constexpr std::array<std::pair<std::string_view, InputFormat>, 8> known{{{"auto", automatic},
                                                                           {"ogb", ogb},
                                                                           {"edgelist", edgelist},
                                                                           {"mtx", mtx},
                                                                           {"metis", metis},
                                                                           {"npy", npy},
                                                                           {"triples", triples},
                                                                           {"typed", typed}}};
  for (auto const& [name, format] : known)
    if (name == word) return format;
  throw_user("unknown format \"{}\"; known: auto, ogb, edgelist, mtx, metis, npy, triples, typed", word);
}

namespace {

/// Looks for the features of edges. edge_attr.npy then has features, not weights.
void find_edge_features(Input const& input, GraphFiles& files) {
  auto const folder = files.edges.parent_path();
  if (files.topology == Topology::ogb_text)
    files.edge_features = find_text(folder, "edge-feat.csv");
  else if (files.topology == Topology::npy)
    files.edge_features = find_first(folder, {"edge_feat.npy", "edge_attr.npy"});
  else if (files.topology == Topology::ogb_npz && has_member(files.edges, edge_feature_member))
    files.edge_features = files.edges;
  auto const keeps = input.edge_features == EdgeFeatures::kept;
  if (!files.edge_features)
    throw_user("{}: {} has no features of edges; looked for edge-feat.csv[.gz] beside "
               "edge.csv[.gz], edge_feat.npy and edge_attr.npy beside edge_index.npy, and {} in data.npz",
               keeps ? "--edge-features keep" : "--features-from-edges", input.path.string(),
               edge_feature_member);
  if (files.edge_weights == files.edge_features) files.edge_weights.reset();
  if (keeps) return;
  auto const has_own = files.topology == Topology::ogb_npz && has_member(files.edges, "node_feat.npy");
  for (auto const& own : {files.feature_text, files.feature_npy, files.sparse_npy,
                          has_own ? std::optional(files.edges) : std::nullopt})
    if (own)
      throw_user(
          "--features-from-edges: vertices have features in {}: leave the option out, or take the file away",
          own->string());
  if (input.random_features > 0)
    throw_user(
        "--features-from-edges and --random-features both make features of vertices: leave one of them out");
}

} // namespace

GraphFiles find_graph_files(Input const& input) {
  std::error_code error;
  auto const status = fs::status(input.path, error);
  if (!fs::exists(status))
    throw_user("cannot read {}: {}", input.path.string(),
               error ? error.message() : std::string("No such file or directory"));
  try {
    auto files = fs::is_directory(status) ? find_in_folder(input) : find_single_file(input);
    if (input.edge_features != EdgeFeatures::ignored) find_edge_features(input, files);
    return files;
  } catch (fs::filesystem_error const& failure) {
    throw_user("cannot read {}: {}", failure.path1().string(), failure.code().message());
  }
}

} // namespace orthant::graph
