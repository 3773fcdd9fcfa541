#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Opens a graph in files. Formats, and how `automatic` recognizes them:
//
//   ogb        a folder with raw/edge.csv[.gz] or raw/data.npz (or these files themselves), and
//              split/NAME/*.csv[.gz]
//   npy        a folder with edge_index.npy (or npy/edge_index.npy) and, with the names of PyTorch Geometric and the
//              Deep Graph Library, edge_weight or edge_attr, x or feat, labels, y or label, train_idx or train_mask,
//              valid_idx, val_idx, valid_mask or val_mask, test_idx or test_mask; or a folder with NAME_graph.npz,
//              a SciPy matrix in coordinates, and NAME_data.npz, as the Deep Graph Library publishes Reddit
//   mtx        a file *.mtx[.gz], or one that starts with %%MatrixMarket
//   metis      a file *.graph[.gz] of METIS or KaHIP (text/metis_graph.hpp), or a folder with one
//   edgelist   any other text file: "source target [weight]" per line, '#' and '%' start comments; ends are numbers, or names if the first
//              edge has names (text/text_edges.hpp). automatic recognizes a folder with edges.csv, edges.tsv or edges.txt, and .npy files as
//              in npy, whose rows are in the order in which the names of the vertices appear
//   triples    only if requested: a text file of directed edges with relations, "head relation tail" per line (text/text_names.hpp).
//              automatic recognizes a folder with triples.tsv, triples.txt or triples.csv, and .npy files as in npy, whose rows are in
//              the order in which the names of the vertices appear
//
// In a folder with raw/ and npy/, the topology comes from raw/, and data that raw/ lacks come from npy/. A first line of names in a text
// file of numbers is skipped.

#include "graph/graph_source.hpp"
#include "runtime/comm/communicator.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

enum class InputFormat : std::uint8_t { automatic, ogb, edgelist, mtx, metis, npy, triples, typed };

/// Accepts "auto", "ogb", "edgelist", "mtx", "metis", "npy", "triples", "typed". Throws UserError on another word.
[[nodiscard]] InputFormat parse_input_format(std::string_view word);

/// Use of the features of edges (graph_files.hpp). kept: as features of edges; mean, sum: features of vertices are made of them.
enum class EdgeFeatures : std::uint8_t { ignored, mean, sum, kept };

/// The use that the values of --edge-features and --features-from-edges ask for. Throws UserError if both ask for one.
[[nodiscard]] EdgeFeatures edge_features_of(std::string_view edge_features, std::string_view from_edges);

struct Input {
  std::filesystem::path path{};
  InputFormat format = InputFormat::automatic;
  /// Folder under split/. If empty: the first one in meta.json, otherwise the only one, otherwise the first by name.
  std::string split{};
  /// True keeps the direction of edges. Otherwise the graph is undirected: the reverse of every edge is added, as OGB's add_inverse_edge
  /// and PyG's ToUndirected do, regardless of meta.json. In both cases each entry of a symmetric .mtx gives edges in both directions.
  bool is_directed = false;
  /// True adds the inverse of each relation: relation r of R gets r + R with the name rev_NAME, and each edge its reverse with that
  /// relation. Throws UserError for a graph without relations.
  bool adds_inverse = false;
  /// True reads all ends of an edge list as names, even if they are numbers.
  bool names_only = false;
  /// If false, weights in the file are ignored (the third column of an edge list, the values of an .mtx).
  bool use_weights = true;
  /// Ids of an edge list must be below this; 0: one above the largest id.
  std::int64_t num_vertices = 0;

  /// Throws UserError if they are to be used and there are none, or if they are to become features of vertices, which have features.
  EdgeFeatures edge_features = EdgeFeatures::ignored;

  /// Labels in .npy are targets of regression, also if all of them are integers. Throws UserError for other labels.
  bool labels_are_targets = false;

  // Random data in place of the data in the files, seeded by the original vertex id.
  std::int64_t random_features = 0;                    // columns, standard normal
  std::int64_t random_labels = 0;                      // classes, uniform
  std::optional<std::array<double, 3>> random_split{}; // fractions of train, valid, test; sum at most 1
  std::uint64_t seed = 0;
};

/// The files that are read, for the user; names are relative to the folder. Complete on rank 0 only.
struct InputFiles {
  std::vector<std::string> read;
  std::vector<std::string> unused; // entries of the searched folders that are not read
  std::vector<std::string> notes;  // sentences about ignored parts of the files
};

/// Opens a graph. Reads only what determines its facts: small files, headers, and once all of the edge lists and labels. Fills `files`
/// unless it is null. Collective over `comm`, which must outlive the source. Throws UserError on all ranks if the input is wrong.
[[nodiscard]] std::unique_ptr<GraphSource> open_graph(runtime::Communicator const& comm, Input const& input,
                                                      InputFiles* files = nullptr);

} // namespace orthant::graph
