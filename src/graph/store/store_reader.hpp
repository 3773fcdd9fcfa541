#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads from a graph store only the data that one rank needs: a rectangle of the matrix, rows of the features, labels.
//
//   GraphStore store = GraphStore::open(world, "graph.h5");              // collective
//   auto rows = balanced_range(store.facts().num_vertices, grid_c, coordinate_c);
//   CsrBlock block = together(world, [&] { return store.read_block(Parity::even, rows, columns); });
//
// Opening is collective. Reading is not: any rank may read any data at any time, and errors are thrown on that rank alone, so wrap reads in
// together(). Data that are read are compared with their checksums (whole units only: every tile of a matrix, otherwise every full chunk of
// 1,024 elements) and with the limits from the facts: ids, positions, labels and entries must be in range, and weights must be finite.
// Otherwise the read throws UserError.

#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace orthant::runtime {
class Hdf5File;
}

namespace orthant::graph {

/// A rectangle of A or of sparse features in CSR with local indices: row r is rows.begin + r, and columns[k] counts from
/// columns_range.begin.
struct CsrBlock {
  Range rows;
  Range columns_range;
  std::vector<std::int64_t> row_offsets; // [rows.size() + 1]
  std::vector<std::int32_t> columns;     // [nnz], ascending within a row
  std::vector<float> values;             // [nnz]; empty: every stored entry is 1
  /// [nnz] number of each entry's relation; empty: a graph without relations.
  std::vector<std::uint16_t> relations{};
  std::int64_t num_features = 0; // of each entry; 0: a graph without features of edges, or they are ignored
  /// [nnz x num_features]; in double, because added self loops have means.
  std::vector<double> features{};

  [[nodiscard]] std::int64_t num_nonzeros() const { return static_cast<std::int64_t>(columns.size()); }
};

/// A^ = diag(row_scale) (block) diag(column_scale). An empty vector means all 1. Stored in double, so that both precisions of training
/// round once.
struct Scales {
  std::vector<double> rows;
  std::vector<double> columns;
};

class GraphStore {
 public:
  /// Opens a store. Throws UserError on all ranks if there is no such file, or if it is not a store, has a newer version or is damaged.
  /// Collective over `comm`.
  [[nodiscard]] static GraphStore open(runtime::Communicator const& comm, std::filesystem::path const& path);

  GraphStore(GraphStore&&) noexcept;
  GraphStore& operator=(GraphStore&&) noexcept;
  ~GraphStore();

  [[nodiscard]] StoreFacts const& facts() const;
  /// Sets the operator for blocks, factors and facts(). Before the first call, it is the operator with which the store was made. Throws
  /// UserError if self loops of A are kept and rows are normalized, because the degrees in the file exclude self loops. Not collective, but
  /// all ranks must set the same operator.
  void set_operator(GraphOperator const& graph_operator);
  /// From this call on, A is read and described as if its entries had no weights. Not collective, but all ranks must call it.
  void ignore_weights();
  /// From this call on, edges are read and described as if they had no features. Not collective, but all ranks must call it.
  void ignore_edge_features();
  /// Whether the file has features of edges that are ignored.
  [[nodiscard]] bool ignores_edge_features() const;
  /// Whether the file has weights that ignore_weights() hides.
  [[nodiscard]] bool ignores_weights() const;
  /// From this call on, sparse features are read and described as dense ones. Not collective, but all ranks must call it.
  void make_features_dense();
  /// File name for messages; "memory" for a store without a file.
  [[nodiscard]] std::string const& name() const;

  /// A or A + I on a rectangle of the matrix of that parity. If the file has only the other parity, its transposed block is read. At most
  /// 2^31 columns. Entries of equal ends and different relations ascend by relation; with added self loops, which have no relation, the
  /// block has none. The features of an added self loop are the means over its row (read_edge_feature_means()), as in PyTorch Geometric.
  [[nodiscard]] CsrBlock read_block(Parity parity, Range rows, Range columns, SelfLoops self_loops) const;
  /// The block with the self loops of the operator.
  [[nodiscard]] CsrBlock read_block(Parity parity, Range rows, Range columns) const;
  /// The factors of the operator's normalization for these rows and columns.
  [[nodiscard]] Scales read_scales(Parity parity, Range rows, Range columns) const;

  /// Dense features, row-major [rows.size() x columns.size()]. FeatureKind::dense only. Rows in order p2 are read contiguously; rows in
  /// order p1 are gathered through the map and cost more: all rows are read.
  [[nodiscard]] std::vector<float> read_features(Order order, Range rows, Range columns) const;
  /// The remainders of fp64 features: the difference to read_features(), rounded to fp32. The store must have remainders.
  [[nodiscard]] std::vector<float> read_feature_remainders(Order order, Range rows, Range columns) const;
  /// Sparse features. FeatureKind::sparse only. In order p2 (equal to p1 in a store of one order).
  [[nodiscard]] CsrBlock read_sparse_features(Range rows, Range columns) const;
  /// Classes, -1 = none. LabelKind::single only.
  [[nodiscard]] std::vector<std::int32_t> read_labels(Order order, Range rows) const;
  /// Indicators 0, 1 or -1 = unknown, row-major [rows.size() x classes.size()]. LabelKind::multi only.
  [[nodiscard]] std::vector<std::int8_t> read_label_indicator(Order order, Range rows, Range classes) const;
  /// Targets of regression, nan = none, row-major [rows.size() x columns.size()]. LabelKind::real only.
  [[nodiscard]] std::vector<double> read_targets(Order order, Range rows, Range columns) const;
  /// From this call on, this split is read and described; before it, split 0. Throws UserError if there is no such split. Not collective,
  /// but all ranks must set the same split.
  void use_split(std::int64_t number);
  /// 1 if the vertex is in that part of the split in use, otherwise 0. All 0 if the store has no split.
  [[nodiscard]] std::vector<std::uint8_t> read_mask(Split split, Order order, Range rows) const;
  /// The parts of any split as bits: 1 train, 2 valid, 4 test. The store must have that split.
  [[nodiscard]] std::vector<std::uint8_t> read_split(std::int64_t number, Order order, Range rows) const;

  /// Original ids p[i] for i in the range. Random numbers are keyed by them.
  [[nodiscard]] std::vector<std::int64_t> read_original_ids(Order order, Range rows) const;
  /// Positions in the other order of the vertices at these positions of `order`: the map for a relayout.
  [[nodiscard]] std::vector<std::int64_t> read_other_positions(Order order, Range rows) const;
  /// Sums of the weights of A in these rows without self loops. The store must have weights.
  [[nodiscard]] std::vector<double> read_weight_sums(Order order, Range rows) const;
  /// Means of the features of the entries of A in these rows without self loops, [rows x features]; 0 without entries.
  [[nodiscard]] std::vector<double> read_edge_feature_means(Order order, Range rows) const;
  /// Numbers of entries of A in these rows without self loops.
  [[nodiscard]] std::vector<std::int64_t> read_degrees(Order order, Range rows) const;
  /// Names of the vertices with these original ids. The store must have names: facts().has_vertex_names().
  [[nodiscard]] std::vector<std::string> read_vertex_names(Range ids) const;

  /// Clusters, from 0 to facts().num_clusters - 1. Throws Error if the store has none.
  [[nodiscard]] std::vector<std::int32_t> read_clusters(Order order, Range rows) const;

  /// Links of a part at these places of its array, ascending. `source` and `target` are positions in p1, directed by link_between() of the
  /// original ids (partition/link_sets.hpp). Throws UserError if both ends of a link are equal.
  [[nodiscard]] std::vector<Edge> read_links(Split part, LinkKind kind, Range places) const;

  /// Number of bytes that this rank has read from arrays of the file since it was opened.
  [[nodiscard]] std::int64_t bytes_read() const;

  /// Reads the whole file, each rank a share: compares every checksum, checks that every value is in range, and that the arrays agree with
  /// each other (store_verify.hpp). Throws a UserError with the first array that is wrong. Collective.
  void verify(runtime::Communicator const& comm) const;

  /// Opens a file in memory. Throws UserError if it is not a valid store. Not collective.
  [[nodiscard]] static GraphStore from_file(runtime::Hdf5File file);

 private:
  struct State;
  explicit GraphStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Fingerprint of the data set in a store, equal for every permutation of its vertices.

/// 16 hexadecimal digits. They depend on the facts except permutation, name and seed, on the names and sizes of relations, and for every
/// original vertex on its degree, its label, its parts of the split, and its first and last dense feature. Data sets that differ in one of
/// these have different fingerprints; other features and the ends of edges are not read. Reads N / P positions per rank. Collective.
/// Throws UserError if the store is damaged.
[[nodiscard]] std::string fingerprint_of(runtime::Communicator const& comm, GraphStore const& store);

/// Fingerprint of the assignment of vertices to the store's clusters. Collective. Throws UserError if the store is damaged.
[[nodiscard]] std::string fingerprint_of_clusters(runtime::Communicator const& comm, GraphStore const& store);

} // namespace orthant::graph
