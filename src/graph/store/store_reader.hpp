#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads from a graph store just what one rank needs: a rectangle of the matrix, rows of the features, labels.
//
//   GraphStore store = GraphStore::open(world, "graph.h5");              // collective
//   auto rows = balanced_range(store.facts().num_vertices, grid_c, coordinate_c);
//   CsrBlock block = together(world, [&] { return store.read_block(Parity::even, rows, columns); });
//
// Opening is collective; reading is not: any rank reads anything at any time, and what goes wrong is thrown
// on that rank alone, so wrap it in together(). What is read is checked against its checksum (whole units
// only: every tile of a matrix, every full chunk of 1,024 elements otherwise) and against what the facts
// allow: ids, positions, labels and entries lie within their ranges, weights are finite. All else is a
// UserError.

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

/// A rectangle of A or of sparse features in CSR, local: row r is rows.begin + r, columns[k] counts from
/// columns_range.begin.
struct CsrBlock {
  Range rows;
  Range columns_range;
  std::vector<std::int64_t> row_offsets; // [rows.size() + 1]
  std::vector<std::int32_t> columns;     // [nnz], ascending within a row
  std::vector<float> values;             // [nnz]; empty: every stored entry is 1

  [[nodiscard]] std::int64_t num_nonzeros() const { return static_cast<std::int64_t>(columns.size()); }
};

/// A^ = diag(row_scale) (block) diag(column_scale). An empty one means all 1. In double, so that either
/// precision of training rounds once.
struct Scales {
  std::vector<double> rows;
  std::vector<double> columns;
};

class GraphStore {
 public:
  /// Collective over `comm`. UserError, the same on all ranks: no such file, not a store, a newer version,
  /// damaged.
  [[nodiscard]] static GraphStore open(runtime::Communicator const& comm, std::filesystem::path const& path);

  GraphStore(GraphStore&&) noexcept;
  GraphStore& operator=(GraphStore&&) noexcept;
  ~GraphStore();

  [[nodiscard]] StoreFacts const& facts() const;
  /// Blocks and factors are those of this operator from now on, and facts() say so; until then they are those of the
  /// operator that the store was made with. UserError if self loops of A are to be kept and rows to be normalised:
  /// degrees in the file leave self loops out. Not collective, the same on all ranks.
  void set_operator(GraphOperator const& graph_operator);
  /// File name for messages; "memory" for a store without a file.
  [[nodiscard]] std::string const& name() const;

  /// A or A + I on a rectangle of the matrix of that parity. The transposed block of the other parity is
  /// read where the file holds only that one. At most 2^31 columns.
  [[nodiscard]] CsrBlock read_block(Parity parity, Range rows, Range columns, SelfLoops self_loops) const;
  /// As the operator wants it.
  [[nodiscard]] CsrBlock read_block(Parity parity, Range rows, Range columns) const;
  /// For every row of the rectangle the place in block.columns of the entry where a vertex meets itself, or
  /// -1 (outside the columns, or not stored). Needs the block's parity.
  [[nodiscard]] std::vector<std::int64_t> find_self_loops(Parity parity, CsrBlock const& block) const;
  /// The factors of the operator's normalisation for these rows and columns.
  [[nodiscard]] Scales read_scales(Parity parity, Range rows, Range columns) const;

  /// Dense features, row-major [rows.size() x columns.size()]. FeatureKind::dense only. Rows in order p2 are
  /// contiguous reads; in order p1 they are gathered through the map and cost more.
  [[nodiscard]] std::vector<float> read_features(Order order, Range rows, Range columns) const;
  /// Sparse features, FeatureKind::sparse only. Order p2 (in a store of one order: any).
  [[nodiscard]] CsrBlock read_sparse_features(Range rows, Range columns) const;
  /// Classes, -1 = none. LabelKind::single only.
  [[nodiscard]] std::vector<std::int32_t> read_labels(Order order, Range rows) const;
  /// 0, 1 or -1 = unknown, row-major [rows.size() x classes.size()]. LabelKind::multi only.
  [[nodiscard]] std::vector<std::int8_t> read_label_indicator(Order order, Range rows, Range classes) const;
  /// 1 where the vertex is in that part of the split, else 0. All 0 where the store has no split.
  [[nodiscard]] std::vector<std::uint8_t> read_mask(Split split, Order order, Range rows) const;

  /// p[i] for i in the range: what random numbers are keyed by.
  [[nodiscard]] std::vector<std::int64_t> read_original_ids(Order order, Range rows) const;
  /// Position in the other order of the vertices at these positions of `order`: the map of a relayout.
  [[nodiscard]] std::vector<std::int64_t> read_other_positions(Order order, Range rows) const;
  /// Sums of the weights of A in these rows, self loops not counted. Of a store with weights.
  [[nodiscard]] std::vector<double> read_weight_sums(Order order, Range rows) const;
  /// Entries of A in these rows, self loops not counted.
  [[nodiscard]] std::vector<std::int64_t> read_degrees(Order order, Range rows) const;

  /// Clusters, 0 .. facts().num_clusters - 1. Error if the store has none.
  [[nodiscard]] std::vector<std::int32_t> read_clusters(Order order, Range rows) const;

  /// Links of a part, by place: `source` and `target` are positions in p1, and of the two orders of a pair the one that
  /// link_between() (partition/link_sets.hpp) makes of the ids. Ascending. UserError if both ends of one are the same.
  [[nodiscard]] std::vector<Edge> read_links(Split part, LinkKind kind, Range places) const;

  /// Number of bytes that this rank has read from arrays of the file since it was opened.
  [[nodiscard]] std::int64_t bytes_read() const;

  /// Reads the whole file, each rank a share: compares every checksum, every value with what it can be, and
  /// what arrays say of each other (store_verify.hpp). UserError names the first array that is wrong.
  /// Collective.
  void verify(runtime::Communicator const& comm) const;

  /// Takes a file in memory. UserError if it is not a sound store. Not collective.
  [[nodiscard]] static GraphStore from_file(runtime::Hdf5File file);

 private:
  struct State;
  explicit GraphStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A name for the data set in a store, the same for every permutation of its vertices.

/// 16 hexadecimal digits that depend on the facts but the permutation, the name and the seed, and for every
/// original vertex on its degree, its label, its parts of the split, and its first and last dense feature. Two
/// data sets that differ in one of these have different fingerprints; other features and the ends of edges
/// are not read. Reads N / P positions per rank. Collective. Throws UserError if the store is damaged.
[[nodiscard]] std::string fingerprint_of(runtime::Communicator const& comm, GraphStore const& store);

/// The same of which vertices are in which of the store's clusters. Collective.
[[nodiscard]] std::string fingerprint_of_clusters(runtime::Communicator const& comm, GraphStore const& store);

} // namespace orthant::graph
