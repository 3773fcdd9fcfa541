#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which files of a folder make up a graph. Looks, reads no more than meta.json.

#include "graph/arrays/npy_streams.hpp"
#include "graph/arrays/zip_archive.hpp"
#include "graph/graph_source.hpp"
#include "graph/read/open_graph.hpp"
#include "graph/text/text_edges.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace orthant::graph {

// What Orthant uses of a data set's meta.json. All of it is optional.

struct DataSetMeta {
  std::filesystem::path path; // empty: there is none
  std::string name;
  std::optional<std::int64_t> num_vertices; // "num_nodes"
  std::optional<std::int64_t> num_edges;    // "num_edge_lines"
  std::optional<std::int64_t> num_classes;  // "num_classes"
  std::vector<std::string> splits;          // names in "splits", in the order of the file
};

/// Reads folder/meta.json if it is there. Throws UserError that names the file if it cannot be read, is not
/// JSON, gives a key twice, or a value of the wrong kind: counts are whole numbers from 0, without a
/// fraction.
[[nodiscard]] DataSetMeta read_meta(std::filesystem::path const& folder);

struct GraphFiles {
  using Path = std::filesystem::path;
  enum class Topology : std::uint8_t { ogb_text, ogb_npz, npy, scipy_npz, edge_list, matrix_market };

  Topology topology{};
  Path edges;                        // edge.csv[.gz], data.npz, edge_index.npy, an edge list, the .mtx ..
  std::optional<Path> edge_weights;  // edge-weight.csv[.gz], edge_weight.npy or edge_attr.npy
  std::optional<Path> num_nodes;     // num-node-list.csv[.gz]
  std::optional<Path> num_edges;     // num-edge-list.csv[.gz]
  std::optional<Path> feature_text;  // node-feat.csv[.gz]
  std::optional<Path> feature_npy;   // x.npy or feat.npy
  std::optional<Path> sparse_npy;    // the folder that holds x_indptr.npy ..
  std::optional<Path> label_text;    // node-label.csv[.gz]
  std::optional<Path> label_npz;     // node-label.npz
  std::optional<Path> label_npy;     // labels.npy, y.npy or label.npy
  std::optional<Path> dgl_data;      // NAME_data.npz
  using Lists = std::array<Path, 3>; // train, valid, test
  std::optional<Lists> split_text;   // split/NAME/train.csv[.gz] ..
  std::optional<Lists> split_npy;    // train_idx.npy ..
  std::optional<Lists> split_masks;  // train_mask.npy ..
  std::string split_name;
  DataSetMeta meta;
};

/// Throws UserError: nothing there, no format fits (it lists what it looked for), no such split, an entry
/// that is there but cannot be reached. An array that lacks its companions is named all the same, so that
/// opening them says which is missing.
[[nodiscard]] GraphFiles find_graph_files(Input const& input);

// How open_graph gets from files to parts, on each rank alone: first what headers and small files say
// (graph_heads.cpp), then, once the number of vertices is known, the streams (open_graph.cpp).

/// Who says how many vertices there are.
struct VertexCount {
  std::int64_t count = -1;
  std::string source;

  /// All that say it must agree. Throws UserError otherwise, and if it is not between 0 and 2^40.
  void add(std::int64_t other, std::string const& name);
};

/// Features and labels as arrays, wherever they lie.
struct Attributes {
  OpenArray features;
  OpenArray labels;
  OpenArray split; // a number per vertex
  std::optional<SparseArrays> sparse;
  std::int64_t num_sparse_columns = 0;
};

/// The work of open_graph that needs no other rank.
struct Opener {
  Input const& input;
  GraphFiles files;
  Share share;
  VertexCount vertices;
  Attributes attributes;
  EdgeTextFormat text_format;
  SourceParts parts;
  std::vector<ArchiveMember> members; // that are read
  std::vector<std::string> notes;     // of InputFiles

  [[nodiscard]] bool is_text_topology() const {
    using enum GraphFiles::Topology;
    return files.topology != npy && files.topology != ogb_npz && files.topology != scipy_npz;
  }

  // Headers and small files, on every rank.
  void read_heads();
  void read_text_topology();
  void read_array_topology();
  void read_scipy_topology();
  void read_dgl_data();
  void read_attributes();
  void read_sparse_heads();
  void read_mask_heads();
  void compare_with_meta();
  void note_names_line(std::filesystem::path const& path);
  OpenArray use_member(std::filesystem::path const& archive, std::string const& member);

  [[nodiscard]] InputFiles describe_files() const;

  // Once the number of vertices is known.
  void build_edges();
  [[nodiscard]] EndArrays edge_ends() const;
  void build_features();
  void build_labels(std::int64_t num_classes);
  void build_split();
  void require_vertex_lines(std::filesystem::path const& path, std::int64_t num_columns) const;
};

/// Opens the array anew at each call.
[[nodiscard]] OpenArray array_in(std::filesystem::path const& archive, std::string const& member);
[[nodiscard]] OpenArray array_file(std::filesystem::path const& path);

} // namespace orthant::graph
