#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How open_graph gets from files to parts, on each rank alone: first what headers and small files say
// (graph_heads.cpp), then, once the number of vertices is known, the streams (graph_parts.cpp).

#include "graph/arrays/archive_check.hpp"
#include "graph/arrays/npy_streams.hpp"
#include "graph/assembled_source.hpp"
#include "graph/largest_graph.hpp"
#include "graph/read/graph_files.hpp"
#include "graph/read/open_graph.hpp"
#include "graph/text/text_edges.hpp"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace orthant::graph {

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
