// SPDX-License-Identifier: Apache-2.0
#include "graph/arrays/zip_archive.hpp"
#include "graph/path_entry.hpp"
#include "graph/read/graph_files.hpp"
#include "graph/text/text_edges.hpp"
#include "graph/text/text_tables.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace orthant::graph {

using runtime::throw_user;
using Topology = GraphFiles::Topology;

namespace {

std::int64_t read_single(NpyArray array) {
  if (array.num_elements() != 1) array.fail_shape("one number (a single graph)");
  std::int64_t value = 0;
  array.read(0, std::span(&value, 1));
  return value;
}

} // namespace

bool has_member(std::filesystem::path const& archive, std::string const& member) {
  return std::ranges::count(list_zip_members(archive), member) > 0;
}

OpenArray array_in(std::filesystem::path const& archive, std::string const& member) {
  return [=] { return NpyArray(open_zip_member(archive, member)); };
}
OpenArray array_file(std::filesystem::path const& path) {
  return [=] { return NpyArray(path); };
}

void VertexCount::add(std::int64_t other, std::string const& name) {
  if (other < 0 || other > most_vertices)
    throw_user("{} says {} vertices; a graph has 1 to 2^40", name, other);
  if (count >= 0 && other != count)
    throw_user("{} says {} vertices, but {} says {}", source, count, name, other);
  count = other;
  if (source.empty()) source = name;
}

/// Records that the member is read, and opens it.
OpenArray Opener::use_member(std::filesystem::path const& archive, std::string const& member) {
  members.push_back({archive, member});
  return array_in(archive, member);
}

void Opener::read_heads() {
  if (input.num_vertices > 0) vertices.add(input.num_vertices, "the given number of vertices");
  if (input.adds_inverse && files.topology != Topology::triples)
    throw_user("--add-inverse: {} has no relations; --format triples reads some", input.path.string());
  bool const is_list = files.topology == Topology::edge_list || files.topology == Topology::triples;
  if (input.names_only && !is_list)
    throw_user("--names is for edge lists and triples; {} is neither", files.edges.string());
  if (files.topology == Topology::triples) {
    parts.format = "triples";
    probe = probe_triples(files.edges);
    if (probe.has_header) note_names_line(files.edges);
  } else if (files.topology == Topology::metis)
    read_metis_topology();
  else if (files.topology == Topology::csv_data_set)
    read_csv_topology();
  else if (is_text_topology())
    read_text_topology();
  else if (files.topology == Topology::scipy_npz)
    read_scipy_topology();
  else
    read_array_topology();
  read_attributes();
  require_whole_split();
  read_mask_heads();
  compare_with_meta();
  if (vertices.count == 0) throw_user("{} says 0 vertices: the graph is empty", vertices.source);
  bool const has_relations = files.topology == Topology::triples;
  parts.is_directed = has_relations || (input.is_directed && parts.is_directed);
}

NamedEdges Opener::read_names() {
  if (files.csv && share.index == 0) scan_csv_vertices(csv, notes);
  using Weights = EdgeTextFormat::Weights;
  auto const weights = input.use_weights ? Weights::read : Weights::passed_over;
  return read_named_edges(files.edges, share, probe, weights, std::exchange(csv.ids, {}));
}

void Opener::use_names(std::int64_t num_vertices, std::int64_t num_edges,
                       std::vector<std::string> relations) {
  auto const file = files.edges.string();
  bool const has_relations = files.topology == Topology::triples;
  if (num_edges == 0) throw_user("{} has no {}", file, has_relations ? "triples" : "edges");
  if (vertices.count >= 0 && vertices.count != num_vertices)
    throw_user(
        "{} says {} vertices, but {} names {}: a row per named vertex is wanted, in the order in which the "
        "names appear",
        vertices.source, vertices.count, file, num_vertices);
  vertices.add(num_vertices, file);
  auto& edges = parts.edges;
  if (edges.num_edges >= 0 && edges.num_edges != num_edges)
    throw_user("{} says {} edges, but {} has {}", edges.promised_by, edges.num_edges, file, num_edges);
  std::int64_t const copies = input.adds_inverse ? 2 : 1;
  edges.num_edges = num_edges * copies;
  edges.num_local_edges = std::ssize(named->edges) * copies;
  edges.promised_by = file;
  auto const count = std::ssize(relations);
  if (count > most_relations) throw_user("{} has more than {} relations", file, most_relations);
  if (input.adds_inverse) {
    std::set<std::string> const given(relations.begin(), relations.end());
    if (2 * count > most_relations)
      throw_user("--add-inverse: {} has {} relations, and a graph at most {}", file, count, most_relations);
    for (std::int64_t r = 0; r < count; ++r) {
      auto name = "rev_" + relations[static_cast<std::size_t>(r)];
      if (given.contains(name))
        throw_user("--add-inverse: {} has the relation {} already: leave --add-inverse out", file, name);
      relations.push_back(std::move(name));
    }
  }
  parts.names.relations = std::move(relations);
  parts.names.has_names = true;
}

void Opener::compare_with_meta() {
  auto const& meta = files.meta;
  if (meta.num_vertices) vertices.add(*meta.num_vertices, meta.path.string());
  if (!meta.num_edges) return;
  auto& edges = parts.edges;
  if (edges.num_edges >= 0 && edges.num_edges != *meta.num_edges)
    throw_user("{} says {} edges, but {} says {}", edges.promised_by, edges.num_edges, meta.path.string(),
               *meta.num_edges);
  edges.num_edges = *meta.num_edges;
  if (edges.promised_by.empty()) edges.promised_by = meta.path.string();
}

void Opener::read_text_topology() {
  using Weights = EdgeTextFormat::Weights;
  parts.is_directed = true;
  auto const weights = input.use_weights ? Weights::read : Weights::passed_over;
  if (files.topology == Topology::matrix_market) {
    auto const head = read_matrix_market_head(files.edges);
    vertices.add(head.num_vertices, files.edges.string());
    parts.format = "mtx";
    parts.is_directed = !head.is_symmetric;
    parts.edges.num_edges = head.num_entries;
    parts.edges.promised_by = "the head of " + files.edges.string();
    text_format.first_id = 1;
    text_format.has_comments = true;
    text_format.weights = !head.has_values ? Weights::absent : head.is_skew ? Weights::passed_over : weights;
    text_format.has_whole_weights = head.has_integers;
    if (head.is_skew)
      notes.push_back(
          "the matrix is skew-symmetric: its pattern is read, and its values, which change sign, are not");
    text_format.start = head.start;
  } else if (files.topology == Topology::edge_list) {
    probe = probe_text_edges(files.edges, input.names_only);
    if (probe.num_columns == 0) throw_user("{} has no edges", files.edges.string());
    parts.format = "edgelist";
    text_format.has_comments = true;
    text_format.has_dicts = probe.has_dicts;
    text_format.may_have_names = true;
    bool const has_weights = probe.num_columns == 3 || (probe.has_dicts && !input.use_weights);
    text_format.weights = has_weights ? weights : Weights::absent;
    text_format.start = probe.start;
    if (probe.has_header) note_names_line(files.edges);
    if (probe.has_names) {
      files.topology = Topology::named_edges;
      notes.push_back(
          fmt::format("vertices have names, such as in the first edge, \"{}\"", probe.first_edge));
    }
  } else {
    parts.format = "ogb";
    if (has_names_line(files.edges)) {
      text_format.start = probe_text_edges(files.edges).start;
      note_names_line(files.edges);
    }
    if (files.num_nodes) vertices.add(read_text_count(*files.num_nodes), files.num_nodes->string());
    if (files.num_edges) {
      parts.edges.num_edges = read_text_count(*files.num_edges);
      parts.edges.promised_by = files.num_edges->string();
    }
  }
  parts.edges.is_weighted = text_format.weights == Weights::read || (files.edge_weights && input.use_weights);
}

void Opener::read_csv_topology() {
  parts.format = "csv";
  parts.is_directed = true;
  auto const& meta = *files.csv;
  csv = read_csv_columns(meta.vertices[0], meta.separator, notes);
  probe = probe_csv_edges(meta.edges[0], meta.separator, true, notes);
  parts.edges.is_weighted = probe.weight && input.use_weights;
  if (csv.has_split() && input.split.empty()) files.split_text.reset(); // masks take precedence over split/
}

void Opener::read_metis_topology() {
  auto const file = files.edges.string();
  parts.format = "metis";
  metis = read_metis_head(files.edges);
  vertices.add(metis.num_vertices, "the head of " + file);
  parts.edges.num_edges = metis.num_edges;
  parts.edges.promised_by = "the head of " + file;
  parts.edges.is_weighted = metis.has_weights && input.use_weights;
  if (metis.num_edges == 0) throw_user("{} has no edges", file);
  auto const claim =
      fmt::format("the head of {} says {} vertices and {} edges", file, metis.num_vertices, metis.num_edges);
  constexpr std::int64_t edge_bytes = 4; // "2 " in two lines
  require_text_room(files.edges, metis.num_edges, edge_bytes, claim);
  require_text_room(files.edges, metis.num_vertices, 1, claim);
  if (metis.num_passed_over > 0)
    notes.push_back(
        fmt::format("{} numbers per vertex, its size or weights, are ignored", metis.num_passed_over));
}

void Opener::read_array_topology() {
  parts.is_directed = true;
  auto const& path = files.edges;
  bool const is_archive = files.topology == Topology::ogb_npz;
  parts.format = is_archive ? "ogb" : "npy";
  auto const edge_index = is_archive ? use_member(path, "edge_index.npy")() : NpyArray(path);
  if (edge_index.shape().size() != 2 || edge_index.shape()[0] != 2)
    edge_index.fail_shape("[2, edges], sources above targets,");
  if (!edge_index.is_integer())
    throw_user("{}: type '{}'; vertex ids are integers: a.astype('int64')", edge_index.name(),
               edge_index.type());
  parts.edges.num_edges = edge_index.shape()[1];
  parts.edges.promised_by = edge_index.name();
  if (files.edge_features)
    attributes.edge_features =
        is_archive ? use_member(path, edge_feature_member) : array_file(*files.edge_features);
  if (parts.edges.num_edges == 0) throw_user("{} has no edges", edge_index.name());
  parts.edges.is_weighted = files.edge_weights && input.use_weights;
  if (parts.edges.is_weighted) {
    NpyArray const weights(*files.edge_weights);
    auto const& shape = weights.shape();
    bool const has_columns = shape.size() == 2 && shape[0] == parts.edges.num_edges && shape[1] != 1;
    if (has_columns && files.edge_weights->filename() == "edge_attr.npy") { // features of edges
      notes.push_back(fmt::format("edge_attr.npy has {} columns and is not used: an edge takes one weight "
                                  "(see --features-from-edges)",
                                  shape[1]));
      files.edge_weights.reset();
      parts.edges.is_weighted = false;
    } else if (shape.size() > 2 || weights.num_elements() != parts.edges.num_edges || has_columns) {
      weights.fail_shape(fmt::format("[{}], one weight an edge,", parts.edges.num_edges));
    }
  }
  if (!is_archive) return;
  if (has_member(path, "num_nodes_list.npy"))
    vertices.add(read_single(use_member(path, "num_nodes_list.npy")()),
                 path.string() + "(num_nodes_list.npy)");
  if (has_member(path, "num_edges_list.npy") &&
      read_single(use_member(path, "num_edges_list.npy")()) != parts.edges.num_edges)
    throw_user("{}: edge_index has {} edges, num_edges_list says otherwise", path.string(),
               parts.edges.num_edges);
  if (!files.feature_text && has_member(path, "node_feat.npy"))
    attributes.features = use_member(path, "node_feat.npy");
}

/// A sparse matrix in coordinates, as scipy.sparse.save_npz writes it: entry [row, col] is an edge from row to col. Its values are ignored.
void Opener::read_scipy_topology() {
  auto const& path = files.edges;
  parts.format = "npy";
  parts.is_directed = true;
  if (!has_member(path, "row.npy") && has_member(path, "indptr.npy"))
    throw_user("{} holds a matrix in compressed rows or columns; coordinates are wanted: "
               "scipy.sparse.save_npz(file, matrix.tocoo())",
               path.string());
  auto shape = use_member(path, "shape.npy")();
  if (!shape.is_list() || shape.num_elements() != 2) shape.fail_shape("[2], rows and columns,");
  std::array<std::int64_t, 2> extents{};
  shape.read(0, std::span(extents));
  if (extents[0] != extents[1])
    throw_user("{}: the matrix has {} rows and {} columns; that of a graph is square", path.string(),
               extents[0], extents[1]);
  vertices.add(extents[0], shape.name());

  auto const rows = use_member(path, "row.npy")();
  auto const columns = use_member(path, "col.npy")();
  for (auto const* const ids : {&rows, &columns}) {
    if (!ids->is_list()) ids->fail_shape("[edges]");
    if (!ids->is_integer())
      throw_user("{}: type '{}'; vertex ids are integers: a.astype('int64')", ids->name(), ids->type());
  }
  if (columns.num_elements() != rows.num_elements())
    columns.fail_shape(fmt::format("{}, as {} has,", to_string(rows.shape()), rows.name()));
  parts.edges.num_edges = rows.num_elements();
  parts.edges.promised_by = rows.name();
  if (parts.edges.num_edges == 0) throw_user("{} has no edges", path.string());
  if (files.dgl_data) read_dgl_data();
}

void Opener::read_dgl_data() {
  auto const& path = *files.dgl_data;
  attributes.features = use_member(path, "feature.npy");
  attributes.labels = use_member(path, "label.npy");
  attributes.split = use_member(path, "node_types.npy");
  auto const types = attributes.split();
  if (!types.is_list()) types.fail_shape("[vertices]");
  vertices.add(types.num_elements(), types.name());
}

void Opener::read_attributes() {
  auto& features = attributes.features;
  auto& labels = attributes.labels;
  if (!features && !files.feature_text && files.feature_npy) features = array_file(*files.feature_npy);
  if (features) {
    auto const array = features();
    if (array.shape().size() != 2 || array.shape()[1] > most_columns)
      array.fail_shape("[vertices, features], at most 2^31 - 1 features,");
    vertices.add(array.shape()[0], array.name());
  } else if (!files.feature_text && files.sparse_npy) {
    read_sparse_heads();
  }
  if (input.random_labels > 0 || files.label_text) return;
  if (files.label_npz)
    labels = use_member(*files.label_npz, "node_label.npy");
  else if (files.label_npy)
    labels = [path = *files.label_npy] { return NpyArray(path, true); };
  if (!labels) return;
  auto const array = labels();
  auto const& shape = array.shape();
  if (shape.empty() || shape.size() > 2 || (shape.size() == 2 && (shape[1] < 1 || shape[1] > most_columns)))
    array.fail_shape("[vertices], or [vertices, classes] of 1 to 2^31 - 1 classes,");
  if (array.is_text() && array.num_elements() != shape[0]) array.fail_shape("[vertices] of names");
  vertices.add(array.shape()[0], array.name());
}

void Opener::require_whole_split() {
  if (files.split_text || input.random_split) return;
  for (auto const* lists : {&files.split_masks, &files.split_npy}) {
    if (!*lists) continue;
    for (auto const& path : **lists)
      if (!path.empty() && !has_entry(path))
        runtime::throw_user(
            "{} has a part of a split but no {}: a split needs train, valid (or val) and test; "
            "or leave it to --random-split",
            path.parent_path().string(), path.filename().string());
  }
}

void Opener::read_mask_heads() {
  if (!files.split_masks || files.split_text || input.random_split) return;
  std::string first; // name of the first mask with several columns (splits)
  for (auto const& path : *files.split_masks) {
    if (path.empty()) continue;
    NpyArray const mask(path);
    auto const& shape = mask.shape();
    if (shape.empty() || shape.size() > 2 || (shape.size() == 2 && (shape[1] < 1 || shape[1] > most_splits)))
      mask.fail_shape(fmt::format("[vertices], or [vertices, splits] of 1 to {} splits,", most_splits));
    vertices.add(shape[0], mask.name());
    if (mask.is_list()) continue; // a list is the same part in every split
    if (!first.empty() && shape[1] != num_splits)
      throw_user("{} has {} column{} and {} has {}: masks of several splits have a column per split, as many "
                 "in each",
                 mask.name(), shape[1], shape[1] == 1 ? "" : "s", first, num_splits);
    first = mask.name();
    num_splits = shape[1];
  }
}

void Opener::note_names_line(std::filesystem::path const& path) {
  notes.push_back(path.filename().string() + " begins with a line of names, which is ignored");
}

void Opener::read_sparse_heads() {
  auto const& folder = *files.sparse_npy;
  NpyArray shape(folder / "x_shape.npy");
  if (!shape.is_list() || shape.num_elements() != 2) shape.fail_shape("[2], vertices and features,");
  std::array<std::int64_t, 2> extents{};
  shape.read(0, std::span(extents));
  vertices.add(extents[0], shape.name());
  attributes.num_sparse_columns =
      runtime::checked_range(extents[1], 0, most_columns, shape.name() + ": the number of features");
  attributes.sparse = SparseArrays{array_file(folder / "x_indptr.npy"), array_file(folder / "x_indices.npy"),
                                   array_file(folder / "x_data.npy")};
  check_sparse_arrays(*attributes.sparse, extents[0]);
}

} // namespace orthant::graph
