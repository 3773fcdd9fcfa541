// SPDX-License-Identifier: Apache-2.0
#include "graph/generate/random_parts.hpp"
#include "graph/read/graph_files.hpp"
#include "graph/text/text_blocks.hpp"
#include "graph/text/text_tables.hpp"
#include "runtime/error.hpp"

#include <array>

namespace orthant::graph {

using runtime::throw_user;
using Topology = GraphFiles::Topology;

void Opener::build_edges() {
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

/// A line a vertex, of at least one character for each column and what separates it from the next.
void Opener::require_vertex_lines(std::filesystem::path const& path, std::int64_t num_columns) const {
  require_text_room(path, parts.num_vertices, 2 * num_columns,
                    fmt::format("{} says {} vertices", vertices.source, parts.num_vertices));
}

void Opener::build_features() {
  auto const num_vertices = parts.num_vertices;
  if (input.random_features > 0) {
    parts.features = random_features(num_vertices, input.random_features, input.seed, share);
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
                      [=](std::int64_t batch_rows) { return read_npy_features(array, rows, batch_rows); }};
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
    auto const num_columns = head.shape().size() == 2 ? head.shape()[1] : 1;
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
  if (!files.split_text && attributes.split) {
    auto const types = attributes.split;
    auto const rows = npy_share(types(), num_vertices, share);
    parts.split = {"node_types", [=] { return read_npy_split(types(), rows); }};
    return;
  }
  if (!files.split_text && !files.split_npy && !files.split_masks) return;
  parts.split.name = files.split_name;
  parts.split.read = [share = share, num_vertices, files = files] {
    SplitShare result;
    std::array const lists{&result.train, &result.valid, &result.test};
    auto const& paths = files.split_text    ? *files.split_text
                        : files.split_masks ? *files.split_masks
                                            : *files.split_npy;
    for (std::size_t part = 0; part < lists.size(); ++part) {
      auto const& path = paths[part];
      result.names[part] = is_gzip(path) ? path.stem().stem().string() : path.stem().string();
      if (files.split_text) {
        if (static_cast<std::int64_t>(part) % share.count == share.index) // a whole list each
          *lists[part] = read_text_vertices(path, num_vertices);
      } else if (files.split_masks)
        *lists[part] = read_npy_mask(NpyArray(path), share);
      else
        *lists[part] = read_npy_vertices(NpyArray(path), share, num_vertices);
    }
    return result;
  };
}

} // namespace orthant::graph
