// SPDX-License-Identifier: Apache-2.0
#include "graph/read/open_graph.hpp"

#include "graph/generate/computed_streams.hpp"
#include "graph/path_entry.hpp"
#include "graph/read/graph_files.hpp"
#include "graph/read/typed_graph.hpp"
#include "graph/text/name_table.hpp"
#include "graph/text/text_blocks.hpp"
#include "graph/text/text_tables.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/temporary_path.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <span>

namespace orthant::graph {

using runtime::throw_user;

namespace {

/// Number of edges or vertices per batch while a file is scanned.
constexpr std::int64_t scan_batch = std::int64_t{1} << 16;

/// Finds the number of vertices, one above the largest id, and the number of edges by reading all edges once. Collective.
void scan_edges(runtime::Communicator const& comm, Opener& opener) {
  opener.parts.num_vertices = most_vertices;
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

/// Broadcasts the numbers of vertices and features that rank 0 has found; its names are numbered first. Collective.
void share_csv_table(runtime::Communicator const& comm, Opener& opener, NumberedNames const& names) {
  auto& table = opener.csv;
  std::array<std::int64_t, 2> counts{table.num_vertices, table.num_features};
  runtime::broadcast(runtime::host, comm, std::span(counts), 0);
  table.num_vertices = counts[0];
  table.num_features = counts[1];
  runtime::together(comm, [&] {
    if (comm.is_root() && names.count > table.num_vertices)
      throw_user("{} has an edge of the vertex {}, which {} does not list", opener.files.edges.string(),
                 names.all[table.num_vertices], table.path.string());
  });
}

/// Reads a file with names; each rank reads its part of the lines. Collective.
void read_names(runtime::Communicator const& comm, Opener& opener) {
  auto const edges =
      std::make_shared<NamedEdges>(runtime::together(comm, [&] { return opener.read_names(); }));
  opener.named = edges;
  opener.parts.memory.held_bytes = edges->num_bytes();
  auto own = edges->vertices.names();
  edges->vertices = {}; // frees the table before its names are exchanged
  auto vertices = number_names(comm, std::move(own));
  auto relations = number_names(comm, edges->relations.names());
  edges->vertex_ids = std::make_shared<std::vector<std::int64_t> const>(std::move(vertices.ids));
  opener.parts.memory.held_bytes += 8 * std::ssize(*edges->vertex_ids);
  edges->relation_ids = std::move(relations.ids);
  std::string joined; // names of relations, one per line
  for (std::int64_t r = 0; r < relations.all.size(); ++r)
    (joined += relations.all[r]) += '\n';
  runtime::broadcast_text(comm, joined, 0);
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < joined.size(); begin += names.back().size() + 1)
    names.push_back(joined.substr(begin, joined.find('\n', begin) - begin));
  if (auto const count = runtime::all_reduced(comm, edges->num_comments_like_edges); count > 0)
    opener.notes.push_back(
        fmt::format("{} lines of {} that begin with # or % are skipped, although they have the columns of "
                    "an edge",
                    count, opener.files.edges.filename().string()));
  if (opener.files.csv) share_csv_table(comm, opener, vertices);
  auto const num_edges = runtime::all_reduced(comm, std::ssize(edges->edges));
  runtime::together(comm, [&] { opener.use_names(vertices.count, num_edges, std::move(names)); });
  if (comm.is_root()) opener.parts.names.vertices = std::make_shared<NameList const>(std::move(vertices.all));
}

} // namespace

std::unique_ptr<GraphSource> open_graph(runtime::Communicator const& comm, Input const& input,
                                        InputFiles* files) {
  static_cast<void>(
      runtime::checked_range(input.random_labels, 0, most_generated_columns, "the number of random classes"));
  static_cast<void>(runtime::checked_range(input.random_features, 0, most_generated_columns,
                                           "the number of random features"));
  if (runtime::together(comm, [&] { return is_typed_graph(input); }))
    return open_typed_graph(comm, input, files);
  runtime::WorkingScope const working(comm.instruments().position); // ranks may read different amounts
  Share const share{comm.rank(), comm.size()};
  auto opener = runtime::together(comm, [&] {
    Opener result{.input = input, .files = find_graph_files(input), .share = share};
    result.read_heads();
    result.parts.name = result.files.meta.name;
    return result;
  });
  check_stored_members(comm, opener.members);
  if (opener.has_names()) read_names(comm, opener);
  if (opener.files.topology == GraphFiles::Topology::metis)
    opener.first_metis_vertex = check_metis_graph(comm, opener.files.edges, opener.metis);
  if (opener.vertices.count < 0) scan_edges(comm, opener);
  opener.parts.num_vertices = opener.vertices.count;
  runtime::together(comm, [&] {
    opener.build_edges();
    opener.build_features();
    opener.build_split();
  });
  if (input.edge_features == EdgeFeatures::kept) {
    runtime::together(comm, [&] { keep_edge_features(opener); });
  } else if (input.edge_features != EdgeFeatures::ignored) {
    opener.parts.features = features_from_edges(comm, opener);
    auto const own = runtime::balanced_range(opener.parts.num_vertices, share.count, share.index).size();
    opener.parts.memory = memory_of_edge_features(own, opener.parts.features.num_features);
  }
  if (auto const note = opener.find_labels(comm); !note.empty()) opener.notes.push_back(note);
  auto const& declared = opener.files.meta.num_classes;
  auto const& labels = opener.parts.labels;
  if (labels.kind == LabelKind::single && labels.num_classes < 1)
    throw_user("{}: no vertex has a label", input.path.string());
  if (declared && input.random_labels == 0 && labels.kind != LabelKind::none &&
      labels.kind != LabelKind::real && labels.num_classes != *declared)
    throw_user("{} says {} classes, but the labels have {}", opener.files.meta.path.string(), *declared,
               labels.num_classes);
  if (files != nullptr)
    *files = runtime::together(comm, [&] { return comm.is_root() ? opener.describe_files() : InputFiles(); });
  auto const& features = opener.parts.features;
  if (features.kind == FeatureKind::dense) // later code relies on this product not overflowing
    static_cast<void>(runtime::checked_product(
        8 * features.num_features, opener.parts.num_vertices,
        fmt::format("{}: bytes of {} features a vertex", input.path.string(), features.num_features)));
  return assemble_source(std::move(opener.parts));
}

using Topology = GraphFiles::Topology;

void Opener::build_named_edges() {
  auto const num_relations = std::ssize(parts.names.relations) / (input.adds_inverse ? 2 : 1);
  parts.edges.open = [edges = named, adds_inverse = input.adds_inverse,
                      num_relations](std::int64_t batch_size) {
    return stream_of(edges, adds_inverse, num_relations, batch_size);
  };
}

void Opener::build_metis_edges() {
  MetisLines const lines{first_metis_vertex, false, parts.edges.is_weighted};
  parts.edges.open = [path = files.edges, share = share, head = metis, lines](std::int64_t batch_size) {
    return read_metis_edges(path, share, head, lines, batch_size);
  };
}

void Opener::build_edges() {
  if (has_names()) return build_named_edges();
  if (files.topology == Topology::metis) return build_metis_edges();
  auto& edges = parts.edges;
  auto const num_vertices = parts.num_vertices;
  if (is_text_topology()) {
    constexpr std::int64_t shortest_edge = 4; // "1 2\n"
    if (edges.num_edges >= 0)
      require_text_room(files.edges, edges.num_edges, shortest_edge,
                        fmt::format("{} says {} edges", edges.promised_by, edges.num_edges));
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
  auto const ends = edge_ends();
  auto const weights = edges.is_weighted ? array_file(*files.edge_weights) : OpenArray();
  auto const range = npy_share(ends.sources(), edges.num_edges, share);
  edges.num_local_edges = range.size();
  edges.open = [=](std::int64_t batch_size) {
    return read_npy_edges(ends, weights, range, num_vertices, batch_size);
  };
}

EndArrays Opener::edge_ends() const {
  if (files.topology == Topology::npy) return {array_file(files.edges), {}};
  if (files.topology == Topology::ogb_npz) return {array_in(files.edges, "edge_index.npy"), {}};
  return {array_in(files.edges, "row.npy"), array_in(files.edges, "col.npy")};
}

/// Requires that the file is large enough for one line per vertex, with a character and a separator per column.
void Opener::require_vertex_lines(std::filesystem::path const& path, std::int64_t num_columns) const {
  require_text_room(path, parts.num_vertices, 2 * num_columns,
                    fmt::format("{} says {} vertices", vertices.source, parts.num_vertices));
}

void Opener::build_features() {
  auto const num_vertices = parts.num_vertices;
  if (input.random_features > 0) {
    parts.features = random_features(num_vertices, input.random_features, input.seed, share);
  } else if (csv.features) {
    parts.features = csv_features(csv, share);
  } else if (files.feature_text) {
    auto const path = *files.feature_text;
    auto const num_columns = count_text_columns(path);
    if (num_columns == 0) throw_user("{} is empty; a line of features a vertex is wanted", path.string());
    require_vertex_lines(path, num_columns);
    parts.features = {
        FeatureKind::dense, num_columns,
        [=, is_reader = share.index == 0](std::int64_t batch_rows) -> std::unique_ptr<FeatureStream> {
          if (!is_reader) return std::make_unique<EmptyStream<FeatureBatch>>();
          return read_text_features(path, num_vertices, num_columns, batch_rows);
        }};
  } else if (attributes.features) {
    auto const array = attributes.features;
    auto const head = array();
    auto const rows = npy_share(head, num_vertices, share);
    parts.features = {FeatureKind::dense, head.shape()[1],
                      [=](std::int64_t batch_rows) { return read_npy_features(array, rows, batch_rows); },
                      head.is_fp64()};
  } else if (attributes.sparse) {
    auto const arrays = *attributes.sparse;
    auto const num_columns = attributes.num_sparse_columns;
    auto const rows = runtime::balanced_range(num_vertices, share.count, share.index);
    parts.features = {FeatureKind::sparse, num_columns, [=](std::int64_t batch_rows) {
                        return read_npy_sparse_features(arrays, rows, num_columns, batch_rows);
                      }};
  }
  if (parts.features.kind != FeatureKind::none && parts.features.num_features == 0) parts.features = {};
}

void Opener::build_labels(std::int64_t num_classes) {
  auto const num_vertices = parts.num_vertices;
  if (input.random_labels > 0) {
    parts.labels = random_labels(num_vertices, input.random_labels, input.seed, share);
  } else if (csv.label) {
    parts.labels = csv_labels(csv, num_classes, share);
  } else if (files.label_text) {
    auto const path = *files.label_text;
    auto const num_columns = count_text_columns(path);
    if (num_columns == 0) throw_user("{} is empty; a label a vertex is wanted", path.string());
    require_vertex_lines(path, num_columns);
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
    auto const head = array();
    auto const rows = npy_share(head, num_vertices, share);
    auto const num_columns = head.num_columns();
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
  if (!files.split_text && csv.has_split()) {
    parts.split = csv_split(csv, share);
    return;
  }
  if (!files.split_text && attributes.split) {
    auto const types = attributes.split;
    auto const rows = npy_share(types(), num_vertices, share);
    parts.split = {"node_types", [=](std::int64_t) { return read_npy_split(types(), rows); }};
    return;
  }
  if (!files.split_text && !files.split_npy && !files.split_masks) return;
  parts.split.name = files.split_name;
  parts.split.count = files.split_masks && !files.split_text ? num_splits : 1;
  parts.split.read = [share = share, num_vertices, files = files,
                      masks = std::array<NpyMask, 3>()](std::int64_t number) mutable {
    SplitShare result;
    std::array const lists{&result.train, &result.valid, &result.test};
    auto const& paths = files.split_text    ? *files.split_text
                        : files.split_masks ? *files.split_masks
                                            : *files.split_npy;
    for (std::size_t part = 0; part < lists.size(); ++part) {
      auto const& path = paths[part];
      if (path.empty()) continue;
      result.names[part] = is_gzip(path) ? path.stem().stem().string() : path.stem().string();
      if (files.split_text) {
        if (static_cast<std::int64_t>(part) % share.count == share.index) // each list is read by one rank
          *lists[part] = read_text_vertices(path, num_vertices);
      } else if (files.split_masks)
        *lists[part] = masks[part].vertices(NpyArray(path), share, number);
      else
        *lists[part] = read_npy_vertices(NpyArray(path), share, num_vertices);
    }
    return result;
  };
}

} // namespace orthant::graph
