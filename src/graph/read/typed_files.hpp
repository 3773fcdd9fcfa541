#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Finds the files of a graph of several types in a folder (typed_graph.hpp has the layouts).

#include "graph/arrays/npy_streams.hpp"
#include "graph/arrays/zip_archive.hpp"
#include "graph/read/csv_data_set.hpp"
#include "graph/read/graph_files.hpp"
#include "graph/text/text_edges.hpp"
#include "graph/text/text_names.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace orthant::graph {

/// An array in a .npy file, or in a member of an .npz archive.
struct ArrayPlace {
  std::filesystem::path path{};
  std::string member{}; // empty: the file is the array

  /// `may_be_text` as in NpyArray.
  [[nodiscard]] NpyArray open(bool may_be_text = false) const;
  [[nodiscard]] OpenArray opener() const {
    return [place = *this] { return place.open(); };
  }
};

struct RelationFiles {
  std::string source, name, target;
  ArrayPlace edges{};
  bool is_text = false;
  bool has_rows = false; // the array is [edges, 2] instead of [2, edges]
  std::int64_t num_edges = -1;
  EdgeTextProbe probe{};                     // of a table of a CSVDataset
  std::shared_ptr<NamedEdges const> named{}; // edges of such a table, once they have been read

  /// "SOURCE__NAME__TARGET".
  [[nodiscard]] std::string full_name() const { return source + "__" + name + "__" + target; }
};

struct SplitFiles {
  enum class Kind : std::uint8_t { text, arrays, masks, table }; // table: the masks of a CSVDataset
  std::optional<Kind> kind{};                                    // nullopt: there is no split
  std::string name{};
  std::int64_t count = 1;                       // columns of masks
  std::array<std::filesystem::path, 3> paths{}; // train, valid, test; empty: no such part
};

struct TypeFiles {
  using Path = std::filesystem::path;
  std::string name;
  VertexCount count{};
  std::int64_t num_features = 0;
  std::optional<ArrayPlace> feature_npy{}, label_npy{};
  std::optional<Path> feature_text{}, label_text{};
  std::optional<Path> names{};        // names.npy
  std::optional<CsvVertices> table{}; // of a CSVDataset, instead of the files above
  SplitFiles split{};

  [[nodiscard]] bool has_labels() const { return label_npy || label_text || (table && table->label); }
};

struct TypedFiles {
  std::string name;
  std::vector<TypeFiles> types;              // by name
  std::vector<RelationFiles> relations;      // by full name
  std::vector<std::filesystem::path> others; // that give counts
  std::vector<ArchiveMember> members;        // that are read
  std::vector<std::string> notes;            // for InputFiles

  /// Whether the files are the tables of a CSVDataset.
  [[nodiscard]] bool are_tables() const { return types.front().table.has_value(); }

  /// All files that are read.
  [[nodiscard]] std::vector<std::filesystem::path> all() const;
};

/// Whether the folder has edges of relations, in another layout than the tables of a CSVDataset.
[[nodiscard]] bool has_typed_files(std::filesystem::path const& folder);
/// Throws UserError if the folder has no edges of relations, or if files contradict each other.
[[nodiscard]] TypedFiles find_typed_files(Input const& input);

// Archives of OGB (typed_archives.cpp).

namespace detail {

inline constexpr auto edge_archive = "edge_index_dict.npz";

/// Splits a name into SOURCE, NAME and TARGET: "a__writes__b" or, in OGB's layout, "a___writes___b".
[[nodiscard]] std::optional<RelationFiles> relation_of(std::string const& name);

// The functions below add the members that they read to `files`.

/// The numbers of an archive with an array of one number per key: the only graph's number of vertices or edges.
[[nodiscard]] std::map<std::string, std::int64_t> read_archive_counts(std::filesystem::path const& archive,
                                                                      TypedFiles& files);
/// Relations in edge_index_dict.npz. Throws UserError if num_edges_dict.npz has other relations or numbers of edges.
[[nodiscard]] std::vector<RelationFiles> find_archived_relations(std::filesystem::path const& root,
                                                                 TypedFiles& files);
/// Sets features and labels of all types. Throws UserError for members of unknown types.
void find_archived_arrays(std::filesystem::path const& raw, TypedFiles& files);

} // namespace detail

} // namespace orthant::graph
