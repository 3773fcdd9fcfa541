// SPDX-License-Identifier: Apache-2.0
#include "graph/open_graph.hpp"

#include "graph/graph_files.hpp"
#include "graph/matrix_market.hpp"
#include "graph/npy_streams.hpp"
#include "graph/random_parts.hpp"
#include "graph/text_edges.hpp"
#include "graph/text_tables.hpp"
#include "graph/zip_member.hpp"
#include "runtime/collectives.hpp"
#include "runtime/together.hpp"

#include <algorithm>
#include <array>
#include <functional>

namespace orthant::graph {

using runtime::throw_user;
using Topology = GraphFiles::Topology;

namespace {

/// Ids of an edge list that says nothing of the number of vertices: anything above is taken for a slip.
constexpr std::int64_t largest_guess = std::int64_t{1} << 40;
constexpr std::int64_t scan_batch = std::int64_t{1} << 16;

/// Who says how many vertices there are.
struct VertexCount {
  std::int64_t count = -1;
  std::string source;

  /// All that say it must agree.
  void add(std::int64_t other, std::string const& name) {
    if (count >= 0 && other != count)
      throw_user("{} says {} vertices, but {} says {}", source, count, name, other);
    count = other;
    if (source.empty()) source = name;
  }
};

bool has_member(std::filesystem::path const& archive, std::string const& member) {
  return std::ranges::count(list_zip_members(archive), member) > 0;
}

OpenArray array_in(std::filesystem::path const& archive, std::string const& member) {
  return [=] { return NpyArray(open_zip_member(archive, member)); };
}
OpenArray array_file(std::filesystem::path const& path) {
  return [=] { return NpyArray(path); };
}

std::int64_t read_single(NpyArray array) {
  if (array.num_elements() != 1) array.fail_shape("one number (a single graph)");
  std::int64_t value = 0;
  array.read(0, std::span(&value, 1));
  return value;
}

/// Features and labels as arrays, wherever they lie.
struct Attributes {
  OpenArray features;
  OpenArray labels;
  std::optional<SparseArrays> sparse;
  std::int64_t num_sparse_columns = 0;
};

struct Opener {
  Input const& input;
  GraphFiles files;
  Share share;
  VertexCount vertices;
  Attributes attributes;
  EdgeTextFormat text_format;
  SourceParts parts;

  [[nodiscard]] bool is_text_topology() const {
    return files.topology != Topology::npy && files.topology != Topology::ogb_npz;
  }

  // Headers and small files, on every rank.
  void read_heads();
  void read_text_topology();
  void read_array_topology();
  void read_attributes();

  // Once the number of vertices is known.
  void build_edges();
  void build_features();
  void build_labels(std::int64_t num_classes);
  void build_split();
};

void Opener::read_heads() {
  if (input.num_vertices > 0) vertices.add(input.num_vertices, "the given number of vertices");
  if (is_text_topology())
    read_text_topology();
  else
    read_array_topology();
  read_attributes();
  if (files.meta.num_vertices) vertices.add(*files.meta.num_vertices, files.meta.path.string());
  if (files.meta.num_edges && parts.edges.num_edges < 0) {
    parts.edges.num_edges = *files.meta.num_edges;
    parts.edges.promised_by = files.meta.path.string();
  }
  if (vertices.count == 0) throw_user("{} says 0 vertices: the graph is empty", vertices.source);
  parts.is_directed = input.is_directed && parts.is_directed;
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
    parts.edges.promised_by = "its head";
    text_format.first_id = 1;
    text_format.has_comments = true;
    text_format.weights = head.has_values ? weights : Weights::absent;
    text_format.first_byte = head.first_byte;
    text_format.lines_to_skip = head.num_lines;
  } else if (files.topology == Topology::edge_list) {
    auto const probe = probe_text_edges(files.edges);
    if (probe.num_columns == 0) throw_user("{} has no edges", files.edges.string());
    parts.format = "edgelist";
    text_format.has_comments = true;
    text_format.weights = probe.num_columns == 3 ? weights : Weights::absent;
    text_format.first_byte = probe.first_byte;
    text_format.lines_to_skip = probe.lines_to_skip;
  } else {
    parts.format = "ogb";
    if (files.num_nodes) vertices.add(read_text_count(*files.num_nodes), files.num_nodes->string());
    if (files.num_edges) {
      parts.edges.num_edges = read_text_count(*files.num_edges);
      parts.edges.promised_by = files.num_edges->string();
    }
  }
  parts.edges.is_weighted = text_format.weights == Weights::read || (files.edge_weights && input.use_weights);
}

void Opener::read_array_topology() {
  parts.is_directed = true;
  auto const& path = files.edges;
  bool const is_archive = files.topology == Topology::ogb_npz;
  parts.format = is_archive ? "ogb" : "npy";
  auto const edge_index = is_archive ? array_in(path, "edge_index.npy")() : NpyArray(path);
  if (edge_index.shape().size() != 2 || edge_index.shape()[0] != 2)
    edge_index.fail_shape("[2, edges], sources above targets,");
  if (!edge_index.is_integer())
    throw_user("{}: type '{}'; vertex ids are integers: a.astype('int64')", edge_index.name(),
               edge_index.type());
  parts.edges.num_edges = edge_index.shape()[1];
  parts.edges.promised_by = edge_index.name();
  if (parts.edges.num_edges == 0) throw_user("{} has no edges", edge_index.name());
  parts.edges.is_weighted = files.edge_weights && input.use_weights;
  if (parts.edges.is_weighted) {
    NpyArray const weights(*files.edge_weights);
    if (weights.num_elements() != parts.edges.num_edges)
      weights.fail_shape(fmt::format("[{}], one weight an edge,", parts.edges.num_edges));
  }
  if (!is_archive) return;
  if (has_member(path, "num_nodes_list.npy"))
    vertices.add(read_single(array_in(path, "num_nodes_list.npy")()), path.string() + "(num_nodes_list.npy)");
  if (has_member(path, "num_edges_list.npy") &&
      read_single(array_in(path, "num_edges_list.npy")()) != parts.edges.num_edges)
    throw_user("{}: edge_index has {} edges, num_edges_list says otherwise", path.string(),
               parts.edges.num_edges);
  if (!files.feature_text && has_member(path, "node_feat.npy"))
    attributes.features = array_in(path, "node_feat.npy");
}

void Opener::read_attributes() {
  auto& [features, labels, sparse, num_sparse_columns] = attributes;
  if (!features && !files.feature_text && files.feature_npy) features = array_file(*files.feature_npy);
  if (features) {
    auto const array = features();
    if (array.shape().size() != 2) array.fail_shape("[vertices, features]");
    vertices.add(array.shape()[0], array.name());
  } else if (!files.feature_text && files.sparse_npy) {
    auto const& folder = *files.sparse_npy;
    sparse = SparseArrays{array_file(folder / "x_indptr.npy"), array_file(folder / "x_indices.npy"),
                          array_file(folder / "x_data.npy")};
    auto const indptr = sparse->indptr();
    auto const indices = sparse->indices();
    auto const data = sparse->data();
    NpyArray shape(folder / "x_shape.npy");
    if (shape.num_elements() != 2) shape.fail_shape("[2], vertices and features,");
    std::array<std::int64_t, 2> extents{};
    shape.read(0, std::span(extents));
    num_sparse_columns = extents[1];
    vertices.add(extents[0], shape.name());
    if (indptr.num_elements() != extents[0] + 1) indptr.fail_shape(fmt::format("[{}]", extents[0] + 1));
    if (indices.num_elements() != data.num_elements())
      indices.fail_shape(fmt::format("{}, as {} has,", to_string(data.shape()), data.name()));
  }
  if (input.random_labels > 0 || files.label_text) return;
  if (files.label_npz)
    labels = array_in(*files.label_npz, "node_label.npy");
  else if (files.label_npy)
    labels = array_file(*files.label_npy);
  if (!labels) return;
  auto const array = labels();
  if (array.shape().empty() || array.shape().size() > 2)
    array.fail_shape("[vertices] or [vertices, classes]");
  vertices.add(array.shape()[0], array.name());
}

void Opener::build_edges() {
  auto& edges = parts.edges;
  auto const num_vertices = parts.num_vertices;
  if (is_text_topology()) {
    text_format.num_vertices = num_vertices;
    text_format.id_limit = fmt::format("{} says {} vertices", vertices.source, num_vertices);
    auto const weight_file = edges.is_weighted ? files.edge_weights : std::nullopt;
    edges.open = [path = files.edges, weight_file, share = share,
                  format = text_format](std::int64_t batch_size) -> std::unique_ptr<EdgeStream> {
      if (!weight_file) return read_text_edges(path, share, format, batch_size);
      if (share.index > 0) return std::make_unique<EmptyStream<EdgeBatch>>();
      return read_text_edges_with_weights(path, *weight_file, format, batch_size);
    };
    return;
  }
  auto const edge_index =
      files.topology == Topology::npy ? array_file(files.edges) : array_in(files.edges, "edge_index.npy");
  auto const weights = edges.is_weighted ? array_file(*files.edge_weights) : OpenArray();
  auto const range = runtime::balanced_range(edges.num_edges, share.count, share.index);
  edges.num_local_edges = range.size();
  edges.open = [=](std::int64_t batch_size) {
    return read_npy_edges(edge_index, weights, range, num_vertices, batch_size);
  };
}

void Opener::build_features() {
  auto const num_vertices = parts.num_vertices;
  auto const rows = runtime::balanced_range(num_vertices, share.count, share.index);
  if (input.random_features > 0) {
    parts.features = random_features(num_vertices, input.random_features, input.seed, share);
  } else if (files.feature_text) {
    auto const path = *files.feature_text;
    auto const num_columns = count_text_columns(path);
    parts.features = {
        FeatureKind::dense, num_columns,
        [=, is_reader = share.index == 0](std::int64_t batch_rows) -> std::unique_ptr<FeatureStream> {
          if (!is_reader) return std::make_unique<EmptyStream<FeatureBatch>>();
          return read_text_features(path, num_vertices, num_columns, batch_rows);
        }};
  } else if (attributes.features) {
    auto const array = attributes.features;
    parts.features = {FeatureKind::dense, array().shape()[1],
                      [=](std::int64_t batch_rows) { return read_npy_features(array, rows, batch_rows); }};
  } else if (attributes.sparse) {
    auto const arrays = *attributes.sparse;
    auto const num_columns = attributes.num_sparse_columns;
    parts.features = {FeatureKind::sparse, num_columns, [=](std::int64_t batch_rows) {
                        return read_npy_sparse_features(arrays, rows, num_columns, batch_rows);
                      }};
  }
  if (parts.features.kind != FeatureKind::none && parts.features.num_features == 0) parts.features = {};
}

void Opener::build_labels(std::int64_t num_classes) {
  auto const num_vertices = parts.num_vertices;
  auto const rows = runtime::balanced_range(num_vertices, share.count, share.index);
  if (input.random_labels > 0) {
    parts.labels = random_labels(num_vertices, input.random_labels, input.seed, share);
  } else if (files.label_text) {
    auto const path = *files.label_text;
    auto const num_columns = count_text_columns(path);
    if (num_columns == 0) throw_user("{} is empty; a label a vertex is wanted", path.string());
    auto const kind = num_columns == 1 ? LabelKind::single : LabelKind::multi;
    auto const classes = num_columns == 1 ? num_classes : num_columns;
    parts.labels = {
        kind, classes,
        [=, is_reader = share.index == 0](std::int64_t batch_rows) -> std::unique_ptr<LabelStream> {
          if (!is_reader) return std::make_unique<EmptyStream<LabelBatch>>();
          return kind == LabelKind::single ? read_text_classes(path, num_vertices, classes, batch_rows)
                                           : read_text_indicator(path, num_vertices, classes, batch_rows);
        }};
  } else if (attributes.labels) {
    auto const array = attributes.labels;
    auto const shape = array().shape();
    auto const num_columns = shape.size() == 2 ? shape[1] : 1;
    parts.labels = {
        num_columns == 1 ? LabelKind::single : LabelKind::multi, num_columns == 1 ? num_classes : num_columns,
        [=](std::int64_t batch_rows) { return read_npy_labels(array, rows, num_classes, batch_rows); }};
  }
}

void Opener::build_split() {
  auto const num_vertices = parts.num_vertices;
  if (input.random_split) {
    parts.split = random_split(num_vertices, *input.random_split, input.seed, share);
    return;
  }
  if (!files.split_folder && !files.split_npy) return;
  parts.split.name = files.split_name;
  parts.split.read = [share = share, num_vertices, files = files] {
    SplitShare result;
    std::array const lists{std::pair("train", &result.train), std::pair("valid", &result.valid),
                           std::pair("test", &result.test)};
    std::int64_t index = 0;
    for (auto const& [name, list] : lists) {
      if (!files.split_folder) {
        *list = read_npy_vertices(NpyArray(*files.split_npy / fmt::format("{}_idx.npy", name)), share,
                                  num_vertices);
      } else if (index++ % share.count == share.index) { // a whole list each
        auto path = *files.split_folder / fmt::format("{}.csv.gz", name);
        if (auto const plain = path.parent_path() / path.stem(); std::filesystem::exists(plain)) path = plain;
        *list = read_text_vertices(path, num_vertices);
      }
    }
    return result;
  };
}

/// One above the largest id, by reading all edges once; counts them, too. Collective.
void scan_edges(runtime::Communicator const& comm, Opener& opener) {
  opener.parts.num_vertices = largest_guess;
  opener.vertices.source = "a list without gaps";
  std::array<std::int64_t, 2> found{-1, 0}; // largest id, number of edges
  runtime::together(comm, [&] {
    opener.build_edges();
    auto const stream = opener.parts.edges.open(scan_batch);
    for (EdgeBatch batch; stream->next(batch); found[1] += static_cast<std::int64_t>(batch.edges.size()))
      for (auto const& edge : batch.edges)
        found[0] = std::max({found[0], edge.source, edge.target});
  });
  auto const largest = runtime::all_reduced(comm, found[0], runtime::Reduction::max);
  auto const num_edges = runtime::all_reduced(comm, found[1]);
  opener.vertices = {largest + 1, "the largest id in " + opener.files.edges.string()};
  if (num_edges == 0) throw_user("{} has no edges", opener.files.edges.string());
  opener.parts.edges.num_local_edges = found[1];
  if (opener.parts.edges.num_edges < 0) {
    opener.parts.edges.num_edges = num_edges;
    opener.parts.edges.promised_by = opener.files.edges.string();
  }
}

/// One above the largest class, by reading all labels once. Collective.
std::int64_t scan_classes(runtime::Communicator const& comm, Opener& opener) {
  std::int64_t largest = -1;
  runtime::together(comm, [&] {
    opener.build_labels(opener.parts.num_vertices); // more classes than vertices: surely a slip
    if (opener.parts.labels.kind != LabelKind::single) return;
    auto const stream = opener.parts.labels.open(scan_batch);
    for (LabelBatch batch; stream->next(batch);)
      largest = std::max(largest, std::ranges::max(batch.classes));
  });
  return runtime::all_reduced(comm, largest, runtime::Reduction::max) + 1;
}

} // namespace

std::unique_ptr<GraphSource> open_graph(runtime::Communicator const& comm, Input const& input) {
  runtime::WorkingScope const working(
      comm.instruments().position); // one rank may have more to read than others
  Share const share{comm.rank(), comm.size()};
  auto opener = runtime::together(comm, [&] {
    Opener result{input, find_graph_files(input), share, {}, {}, {}, {}};
    result.read_heads();
    result.parts.name = result.files.meta.name;
    return result;
  });
  if (opener.vertices.count < 0) scan_edges(comm, opener);
  opener.parts.num_vertices = opener.vertices.count;
  runtime::together(comm, [&] {
    opener.build_edges();
    opener.build_features();
    opener.build_split();
  });
  bool const is_declared = opener.files.meta.num_classes || input.random_labels > 0;
  auto const num_classes =
      is_declared ? opener.files.meta.num_classes.value_or(0) : scan_classes(comm, opener);
  runtime::together(comm, [&] { opener.build_labels(num_classes); });
  auto const& labels = opener.parts.labels;
  if (labels.kind == LabelKind::single && labels.num_classes < 1)
    throw_user("{}: no vertex has a label", input.path.string());
  return assemble_source(std::move(opener.parts));
}

} // namespace orthant::graph
