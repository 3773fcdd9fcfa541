#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Finds the files of a folder that make up a graph. It reads only meta.json.

#include "graph/arrays/npy_streams.hpp"
#include "graph/arrays/zip_archive.hpp"
#include "graph/graph_source.hpp"
#include "graph/read/csv_data_set.hpp"
#include "graph/read/open_graph.hpp"
#include "graph/text/metis_graph.hpp"
#include "graph/text/text_edges.hpp"
#include "graph/text/text_names.hpp"
#include "runtime/comm/communicator.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace orthant::graph {

// The parts of a data set's meta.json that Orthant uses. All of them are optional.

struct DataSetMeta {
  std::filesystem::path path; // empty if there is no such file
  std::string name;
  std::optional<std::int64_t> num_vertices;        // "num_nodes"
  std::map<std::string, std::int64_t> type_counts; // numbers of vertices by type, if there are types
  std::optional<std::int64_t> num_edges;           // "num_edge_lines"
  std::optional<std::int64_t> num_classes;         // "num_classes"
  std::vector<std::string> splits;                 // names in "splits", in the order of the file
};

/// Reads folder/meta.json if it exists. Throws a UserError with the file's name if it cannot be read, is not JSON, has a key twice, or has
/// a value of the wrong kind: counts must be non-negative integers.
[[nodiscard]] DataSetMeta read_meta(std::filesystem::path const& folder);

struct GraphFiles {
  using Path = std::filesystem::path;
  enum class Topology : std::uint8_t {
    ogb_text,
    ogb_npz,
    npy,
    scipy_npz,
    edge_list,
    named_edges, // an edge list with names in place of ids
    matrix_market,
    metis,
    csv_data_set,
    triples
  };

  Topology topology{};
  Path edges;                       // edge.csv[.gz], data.npz, edge_index.npy, an edge list, the .mtx ..
  std::optional<Path> edge_weights; // edge-weight.csv[.gz], edge_weight.npy or edge_attr.npy
  std::optional<Path>
      edge_features; // edge-feat.csv[.gz], edge_attr.npy, edge_feat.npy or data.npz, if they are to be used
  std::optional<Path> num_nodes;     // num-node-list.csv[.gz]
  std::optional<Path> num_edges;     // num-edge-list.csv[.gz]
  std::optional<Path> feature_text;  // node-feat.csv[.gz]
  std::optional<Path> feature_npy;   // x.npy or feat.npy
  std::optional<Path> sparse_npy;    // folder of x_indptr.npy ..
  std::optional<Path> label_text;    // node-label.csv[.gz]
  std::optional<Path> label_npz;     // node-label.npz
  std::optional<Path> label_npy;     // labels.npy, y.npy or label.npy
  std::optional<Path> dgl_data;      // NAME_data.npz
  std::optional<CsvMeta> csv;        // meta.yaml of a CSVDataset
  std::optional<Path> class_list;    // classes.csv
  using Lists = std::array<Path, 3>; // train, valid, test; an empty path is an empty part
  std::optional<Lists> split_text;   // split/NAME/train.csv[.gz] ..
  std::optional<Lists> split_npy;    // train_idx.npy ..
  std::optional<Lists> split_masks;  // train_mask.npy ..
  std::string split_name;
  DataSetMeta meta;
};

/// Throws UserError if nothing exists at the path, if no format fits (the message lists the names that were tried), if there is no such
/// split, or if an entry exists but is not accessible. If only some arrays of a group exist (such as those of sparse features), all their
/// names are returned, so that opening them reports the missing ones.
[[nodiscard]] GraphFiles find_graph_files(Input const& input);

/// The names of the files `used` relative to the input, and of the other entries of their folders inside it.
[[nodiscard]] InputFiles list_files(std::filesystem::path const& input,
                                    std::vector<std::filesystem::path> used);

// How open_graph converts files to the parts of a graph, on each rank without communication: first the facts from headers and small files
// (graph_heads.cpp); then the streams, as soon as the number of vertices is known (open_graph.cpp).

/// The number of vertices and the file that gives it.
struct VertexCount {
  std::int64_t count = -1;
  std::string source;

  /// Adds the number from another file. Throws UserError if the numbers differ, or if it is not between 0 and 2^40.
  void add(std::int64_t other, std::string const& name);
};

/// Features and labels as arrays, in files or archives.
struct Attributes {
  OpenArray features;
  OpenArray labels;
  OpenArray edge_features;
  OpenArray split; // one number per vertex
  std::optional<SparseArrays> sparse;
  std::int64_t num_sparse_columns = 0;
};

/// The part of open_graph that does not communicate.
struct Opener {
  Input const& input;
  GraphFiles files;
  Share share;
  VertexCount vertices{};
  Attributes attributes{};
  EdgeTextFormat text_format{};
  SourceParts parts{};
  std::int64_t num_splits = 1;               // columns of the masks
  std::vector<ArchiveMember> members{};      // members that are read
  std::vector<std::string> notes{};          // for InputFiles
  EdgeTextProbe probe{};                     // of an edge list
  CsvVertices csv{};                         // of a CSVDataset
  MetisHead metis{};                         // of a graph file of METIS
  std::int64_t first_metis_vertex = 0;       // first vertex of this rank's part of the lines
  std::shared_ptr<NamedEdges const> named{}; // edges between names

  [[nodiscard]] bool is_text_topology() const {
    using enum GraphFiles::Topology;
    return files.topology != npy && files.topology != ogb_npz && files.topology != scipy_npz;
  }

  // Reads headers and small files. Every rank calls it.
  void read_heads();
  void read_text_topology();
  void read_metis_topology();
  void read_csv_topology();
  void read_array_topology();
  void read_scipy_topology();
  void read_dgl_data();
  void read_attributes();
  void read_sparse_heads();
  void require_whole_split();
  void read_mask_heads();
  void compare_with_meta();
  void note_names_line(std::filesystem::path const& path);
  OpenArray use_member(std::filesystem::path const& archive, std::string const& member);

  [[nodiscard]] InputFiles describe_files() const;

  [[nodiscard]] bool has_names() const {
    using enum GraphFiles::Topology;
    return files.topology == triples || files.topology == named_edges || files.topology == csv_data_set;
  }
  /// Reads this rank's part of a file with names.
  [[nodiscard]] NamedEdges read_names();
  /// Sets the counts that all ranks together have found in a file with names.
  void use_names(std::int64_t num_vertices, std::int64_t num_edges, std::vector<std::string> relations);

  // Must be called when the number of vertices is known.
  void build_edges();
  void build_named_edges();
  void build_metis_edges();
  [[nodiscard]] EndArrays edge_ends() const;
  void build_features();
  void build_labels(std::int64_t num_classes);
  /// Decides whether labels are classes, names or targets, and builds their part of the graph. Reads all labels once, unless meta.json has
  /// the number of classes. Returns a note for the user, or an empty text. Collective.
  [[nodiscard]] std::string find_labels(runtime::Communicator const& comm);
  [[nodiscard]] std::string find_classes(runtime::Communicator const& comm, std::int64_t declared);
  void name_classes(std::vector<std::string> names);
  void build_split();
  void require_vertex_lines(std::filesystem::path const& path, std::int64_t num_columns) const;
};

/// Labels in an array that are not numbers of classes, and a note for the user.
struct FoundLabels {
  LabelPart part;
  std::string note;
};
/// Whether the labels in this rank's rows of an array are targets of regression or names of classes; nullopt: neither. `num_declared`: the
/// number of classes in meta.json, or 0. Reads texts and floating-point numbers once. Throws UserError for texts that are to be targets.
/// Collective.
[[nodiscard]] std::optional<FoundLabels> find_array_labels(runtime::Communicator const& comm,
                                                           OpenArray const& array, Range rows,
                                                           bool are_targets, std::int64_t num_declared);

[[nodiscard]] bool has_member(std::filesystem::path const& archive, std::string const& member);
/// Returns a function that opens the array at each call.
[[nodiscard]] OpenArray array_in(std::filesystem::path const& archive, std::string const& member);
[[nodiscard]] OpenArray array_file(std::filesystem::path const& path);

// Features of edges, which are kept, or become features of vertices as OGB's examples make them for ogbn-proteins:
//
//   x_i := the sum, or the mean, of f_e over the edges e at i
//
// In an undirected graph these are the listed edges with i at either end (a self loop counts once); in a directed graph, those that lead
// to i. Repeats count as often as they are listed. A vertex without edges has zeros.

/// Lets the stream of edges also have their features, and sets their number. Rank 0 reads texts. Features in fp64 are read as fp32. Not
/// collective. Throws UserError if rows and edges do not match, or if edges have weights.
void keep_edge_features(Opener& opener);

/// Name of the features in OGB's raw/data.npz.
inline constexpr char const* edge_feature_member = "edge_feat.npy";

/// Reads the edges again (a text that no file counts, twice). Each rank holds the features of its share of the vertices, 4 bytes each, and 16 more while they are added up.
/// Features in fp64 are read as fp32. Collective. Throws UserError on all ranks if rows and edges do not match.
[[nodiscard]] FeaturePart features_from_edges(runtime::Communicator const& comm, Opener const& opener);
/// Memory of a rank with as many of the vertices.
[[nodiscard]] SourceMemory memory_of_edge_features(std::int64_t num_vertices, std::int64_t num_columns);

} // namespace orthant::graph
