#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Graphs whose vertices and edges have types, as folders of files by type:
//
//   PyTorch Geometric, IGB, MAG240M    TYPE/{x, y, train_mask, ..}.npy, SOURCE__NAME__TARGET/edge_index.npy, in the folder or in processed/
//   OGB                                raw/num-node-dict.csv.gz, raw/relations/SOURCE___NAME___TARGET/edge.csv.gz,
//                                      raw/node-feat/TYPE/node-feat.csv.gz, raw/node-label/TYPE/.., split/NAME/TYPE/train.csv.gz
//   OGB, binary                        raw/{num_nodes_dict, num_edges_dict, edge_index_dict, node_feat_dict, node-label}.npz with a member
//                                      per type or SOURCE___NAME___TARGET, split/NAME/TYPE/train.csv.gz
//   CSVDataset of DGL                  meta.yaml and several tables of vertices or edges (csv_data_set.hpp)
//
// Vertices have names if the tables of a CSVDataset or TYPE/names.npy, an array of texts, give them.
//
// Vertices of one type have contiguous ids: those of the first type, of the second, .. (types by name). Rows of features that are
// narrower than those of another type end with zeros; a type without features has rows of zeros.

#include "graph/graph_source.hpp"
#include "graph/read/open_graph.hpp"
#include "graph/read/typed_files.hpp"
#include "runtime/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace orthant::graph {

/// Whether the folder has edges of relations in one of these layouts.
[[nodiscard]] bool is_typed_graph(Input const& input);

/// Like open_graph(), for a folder in one of these layouts. With `adds_inverse`, a relation between two types gets the inverse rev_NAME,
/// and edges within a type get their reverse in the same relation, as PyTorch Geometric's ToUndirected does. Collective.
[[nodiscard]] std::unique_ptr<GraphSource> open_typed_graph(runtime::Communicator const& comm,
                                                            Input const& input, InputFiles* files);

// How open_typed_graph() makes the parts of a graph of several types from its files, on each rank without communication.

struct TypedOpener {
  Input input;
  TypedFiles files;
  Share share;
  std::vector<std::int64_t> offsets{}; // [types + 1]
  std::vector<std::int64_t>
      inverses{}; // [relations] number of the inverse, perhaps the relation itself; -1: none
  std::vector<std::string> names{};                   // of the relations, including inverses
  std::vector<RelationEnds> ends{};                   // as many
  std::optional<std::size_t> labelled = std::nullopt; // type with labels
  std::shared_ptr<NameList const> vertex_names{};     // of all vertices, on rank 0
  std::int64_t held_bytes = 0;                        // of edges of tables, on this rank

  [[nodiscard]] std::size_t type_of(std::string const& name) const {
    for (std::size_t t = 0; t < files.types.size(); ++t)
      if (files.types[t].name == name) return t;
    runtime::throw_user("there is no type of vertices \"{}\"", name);
  }
  [[nodiscard]] std::int64_t count_of(std::size_t type) const { return files.types[type].count.count; }

  /// Finds the types, their counts, and the numbers of edges, from small files and the headers of arrays.
  void read_heads();
  /// Names the relations, and with --add-inverse their inverses.
  void name_relations();
  /// Edges of a relation by ids within their types, or of a table by ids of the graph. Requires ids below the larger of the known vertex
  /// counts of the two types.
  [[nodiscard]] std::unique_ptr<EdgeStream> open_edges(RelationFiles const& relation,
                                                       std::int64_t batch_size) const;
  /// Converts ids within the types of a relation to those of the graph. Throws UserError for ids beyond their types.
  void add_offsets(std::vector<Edge>& edges, std::size_t relation) const;

  // Must be called when the numbers of vertices are known.
  [[nodiscard]] EdgePart edge_part() const;
  [[nodiscard]] FeaturePart feature_part() const;
  /// Labels of all vertices, from those of the type with labels; other types have none.
  [[nodiscard]] LabelPart label_part(LabelPart of_type) const;
  /// Integer labels of the type that has labels.
  [[nodiscard]] std::unique_ptr<LabelStream> open_labels(std::int64_t num_classes,
                                                         std::int64_t batch_rows) const;
  [[nodiscard]] SplitPart split_part() const;
};

} // namespace orthant::graph
