#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Opens a graph that lies in files. Formats, and how `automatic` knows them:
//
//   ogb        a folder with raw/edge.csv[.gz] or raw/data.npz (or these files themselves), and
//              split/NAME/*.csv[.gz]
//   npy        a folder with edge_index.npy (or npy/edge_index.npy) and, as PyTorch Geometric and the Deep
//              Graph Library call them, edge_weight or edge_attr, x or feat, labels, y or label, train_idx or
//              train_mask, valid_idx, val_idx, valid_mask or val_mask, test_idx or test_mask; or a folder with
//              NAME_graph.npz, a SciPy matrix in coordinates, and NAME_data.npz, as the latter publishes Reddit
//   mtx        a file *.mtx[.gz], or one that starts with %%MatrixMarket
//   edgelist   any other text file: "source target [weight]" a line, '#' and '%' start comments
//
// A folder with raw/ and npy/ gives its topology from raw/ and what raw/ lacks from npy/. A first line of names
// in a text file of numbers is passed over.

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

enum class InputFormat : std::uint8_t { automatic, ogb, edgelist, mtx, npy };

/// "auto", "ogb", "edgelist", "mtx", "npy". Throws UserError on another word.
[[nodiscard]] InputFormat parse_input_format(std::string_view word);

struct Input {
  std::filesystem::path path{};
  InputFormat format = InputFormat::automatic;
  /// Folder under split/. Empty: the first one that meta.json names, else the only one, else the first by
  /// name.
  std::string split{};
  /// Keep the direction of edges. Without it the graph is undirected: the reverse of every edge is added, as
  /// OGB's add_inverse_edge and PyG's ToUndirected do, whatever meta.json says. A symmetric .mtx stands for
  /// both directions in either case.
  bool is_directed = false;
  /// False: weights in the file are passed over (the extra column of an edge list, the values of an .mtx).
  bool use_weights = true;
  /// Ids of an edge list must be below this; 0: one above the largest that occurs.
  std::int64_t num_vertices = 0;

  // Made up, seeded by the original vertex id, in place of what the files have.
  std::int64_t random_features = 0;                    // columns, standard normal
  std::int64_t random_labels = 0;                      // classes, uniform
  std::optional<std::array<double, 3>> random_split{}; // fractions of train, valid, test; sum at most 1
  std::uint64_t seed = 0;
};

/// What is read of an input, for people: names relative to the folder. Complete on rank 0 only.
struct InputFiles {
  std::vector<std::string> read;
  std::vector<std::string> unused; // the other entries of the folders in which files were looked for
  std::vector<std::string> notes;  // sentences: what in the files is passed over
};

/// Collective over `comm`, which must outlive the source. Reads what the facts need: small files, headers,
/// and for edge lists and labels all of the file once. Fills `files` unless it is null. Throws UserError, the
/// same on all ranks.
[[nodiscard]] std::unique_ptr<GraphSource> open_graph(runtime::Communicator const& comm, Input const& input,
                                                      InputFiles* files = nullptr);

} // namespace orthant::graph
