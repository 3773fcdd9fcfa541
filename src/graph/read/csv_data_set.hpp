#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A CSVDataset of the Deep Graph Library: a folder with meta.yaml, tables of vertices and tables of edges. Vertex i is the i-th line of
// the table of vertices. Its id does not matter, because ids are read as names. DGL numbers vertices in ascending order of their ids; match
// predictions by the column `name`, not by row. Columns that are read: of vertices the id, feat (a list of numbers in quotes), label,
// train_mask, val_mask and test_mask; of edges both ends and weight. Rank 0 reads the tables of vertices; all ranks read those of edges.
// Several tables are a graph of several types (typed_graph.hpp).

#include "graph/graph_source.hpp"
#include "graph/text/name_table.hpp"
#include "graph/text/text_edges.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace orthant::graph {

/// The table of the vertices of one type.
struct CsvVertexTable {
  std::filesystem::path path;
  std::string type = "_V";
  std::string id = "node_id"; // columns
  std::string graph = "graph_id";
};
/// The table of the edges of one relation.
struct CsvEdgeTable {
  std::filesystem::path path;
  std::array<std::string, 3> type{"_V", "_E", "_V"}; // type of the sources, name, type of the targets
  std::string source = "src_id";
  std::string target = "dst_id";
};
/// What meta.yaml says.
struct CsvMeta {
  std::filesystem::path path;
  char separator = ',';
  std::vector<CsvVertexTable> vertices; // at least one
  std::vector<CsvEdgeTable> edges;      // at least one

  [[nodiscard]] bool has_types() const { return vertices.size() > 1 || edges.size() > 1; }
};

/// Reads folder/meta.yaml if it exists, the part of YAML that the documentation of the library uses. Throws a UserError with the line if it
/// cannot be read, or if there are many graphs.
[[nodiscard]] std::optional<CsvMeta> read_csv_meta(std::filesystem::path const& folder);

/// The table of vertices.
struct CsvVertices {
  std::filesystem::path path;
  char separator = ',';
  std::size_t id = 0; // columns
  std::optional<std::size_t> features;
  std::optional<std::size_t> label;
  std::optional<std::size_t> graph;                // column of the graph's number, equal in all lines
  std::array<std::optional<std::size_t>, 3> masks; // train, valid, test
  std::int64_t num_vertices = 0;                   // at first known on rank 0 only
  std::int64_t num_features = 0;
  NameTable ids; // on rank 0, until the edges are read

  [[nodiscard]] bool has_split() const { return masks[0] || masks[1] || masks[2]; }
};

// These functions append messages for the user to `notes`.

/// Reads the names of the columns.
[[nodiscard]] CsvVertices read_csv_columns(CsvVertexTable const& vertices, char separator,
                                           std::vector<std::string>& notes);
/// `has_weights`: the column weight is used.
[[nodiscard]] EdgeTextProbe probe_csv_edges(CsvEdgeTable const& edges, char separator, bool has_weights,
                                            std::vector<std::string>& notes);
/// Reads the ids, and counts vertices and features. Throws UserError if an id occurs twice, or if there are several graphs. For rank 0.
void scan_csv_vertices(CsvVertices& table, std::vector<std::string>& notes);

// Features, labels and split of the graph, each if the table has the columns for it. Only rank 0 reads the table.
[[nodiscard]] FeaturePart csv_features(CsvVertices const& table, Share share);
[[nodiscard]] LabelPart csv_labels(CsvVertices const& table, std::int64_t num_classes, Share share);
[[nodiscard]] SplitPart csv_split(CsvVertices const& table, Share share);

} // namespace orthant::graph
