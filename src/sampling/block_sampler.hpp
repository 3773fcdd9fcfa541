#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The part of one block of A^ that the sampled rows and columns select, with rescaled edges, and its transpose.
//
//   A~_ij = r_i s_j m(g_i, g_j)  v_ij    i != j       A~_ii = r_i s_i v_ii        v = 1 in a pattern
//
// with A^ = diag(r) (v) diag(s), g the stratum of a vertex and m as in sampler.hpp. A self loop is not rescaled, because it is always in
// the batch with its vertex. No factor is stored per entry: r_i is stored per row, s_j m(g_i, g_j) per column and stratum of rows, and self
// loops are separate from the pattern. The product is
//
//   C[i,:] = row_scale_i sum_j v_ij column_scale[g_i][j] B[j,:]  +  self_scale_i B[self_columns_i,:]
//
// Renormalized edges have m = 1, and r and s from the degrees within the batch.
//
// Entries with relations have no scales. Self loops of A are entries like all others, and a row may have several entries in one column.

#include "graph/store/listed_block.hpp"
#include "runtime/range.hpp"
#include "sampling/key_table.hpp"
#include "sampling/sampler.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace orthant::sampling {

// Finds by key the vertices of a batch that are in one range of rows or columns, and their positions in the range. A batch costs one
// look-up per vertex of the batch, independent of the sizes of graph and range (key_table.hpp).

using graph::Order;
using runtime::Range;

/// The vertices of a batch that are in a range, in the order of the range.
struct SampledVertices {
  std::vector<std::int32_t> positions;       // [n] ascending; places in the list of ranges
  std::vector<std::int8_t> strata;           // [n] groups of the batch; empty if there is one
  std::vector<std::int64_t> original_ids;    // [n] keys of random numbers
  std::vector<std::int64_t> other_positions; // [n] in the other order, of all N; empty unless requested
  std::vector<double>
      degrees; // [n] 1 + weights of the neighbors in the batch; empty unless edges are renormalized

  [[nodiscard]] std::size_t size() const { return positions.size(); }
};

class LocalVertices {
 public:
  /// Vertices whose keys are their original ids, by position.
  explicit LocalVertices(PackedIds const& original_ids) : table_(original_ids) {}
  /// Vertices with these keys and original ids, by position.
  LocalVertices(PackedIds const& keys, PackedIds original_ids)
      : table_(keys),
        original_ids_(std::move(original_ids)) {}

  [[nodiscard]] std::int64_t size() const { return table_.size(); }

  /// Sets the position of each vertex in the other order (indexed by its position in this one). From now on find() also returns
  /// other_positions.
  void set_other_positions(PackedIds other_positions) { other_positions_ = std::move(other_positions); }
  [[nodiscard]] bool has_other_positions() const { return !other_positions_.empty(); }

  [[nodiscard]] KeyTable const& table() const { return table_; }
  /// By position; empty if the keys are the ids.
  [[nodiscard]] PackedIds const& original_ids() const { return original_ids_; }
  [[nodiscard]] PackedIds const& other_positions() const { return other_positions_; }

  /// Finds the vertices of this range that are in the batch. Cost: O(B) look-ups, and a sort of the vertices found.
  void find(BatchKeys const& keys, SampledVertices& found);

  /// Bytes held, without scratch.
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  KeyTable table_;
  PackedIds original_ids_;    // empty: the keys are the ids
  PackedIds other_positions_; // empty: not requested
  std::vector<std::uint64_t> hits_;
  std::vector<std::uint64_t> scratch_;
};

/// Original ids, or positions in the other order, of ranges of the store, one range after the other. Not collective and may throw: call
/// them inside together().
[[nodiscard]] PackedIds read_original_ids(graph::GraphStore const& store, Order order,
                                          graph::Ranges const& ranges);
[[nodiscard]] PackedIds read_other_positions(graph::GraphStore const& store, Order order,
                                             graph::Ranges const& ranges);

// The columns of a range that are in the batch, and their numbers in it: one bit per column, and one count per 64 columns that is read only
// if one of their bits is set. No operation clears an array of the size of the range. 12 bytes per 64 columns.

class ColumnFilter {
 public:
  explicit ColumnFilter(std::int64_t num_columns)
      : num_columns_(num_columns),
        bits_(static_cast<std::size_t>((num_columns + 63) / 64)),
        before_(bits_.size()) {}

  /// Selects these columns, ascending, in place of the former ones. Cost: O(number of former and new columns).
  void set(std::span<std::int32_t const> columns) {
    for (auto const column : passing_)
      bits_[word_of(column)] = 0;
    passing_.assign(columns.begin(), columns.end());
    std::int32_t number = 0;
    for (auto const column : passing_) {
      auto& word = bits_[word_of(column)];
      if (word == 0) before_[word_of(column)] = number;
      word |= bit_of(column);
      ++number;
    }
  }

  [[nodiscard]] std::int64_t num_columns() const { return num_columns_; }
  /// 1 if the column is selected, otherwise 0.
  [[nodiscard]] std::size_t passes(std::int32_t column) const {
    return bits_[word_of(column)] >> (column % 64) & 1U;
  }
  /// Number of a selected column among the selected columns.
  [[nodiscard]] std::int32_t number(std::int32_t column) const {
    return before_[word_of(column)] + std::popcount(bits_[word_of(column)] & (bit_of(column) - 1));
  }
  [[nodiscard]] std::int64_t num_bytes() const { return bytes(num_columns_); }
  /// num_bytes() of a filter for `num_columns` columns.
  [[nodiscard]] static constexpr std::int64_t bytes(std::int64_t num_columns) {
    return (num_columns + 63) / 64 * 12;
  }

 private:
  static std::size_t word_of(std::int32_t column) { return static_cast<std::size_t>(column) / 64; }
  static std::uint64_t bit_of(std::int32_t column) { return std::uint64_t{1} << (column % 64); }

  std::int64_t num_columns_;
  std::vector<std::uint64_t> bits_;
  std::vector<std::int32_t> before_; // number of selected columns in all words before
  std::vector<std::int32_t> passing_;
};

/// This rank's block of A^ for sampling, with separate self loops. Indices are local.
template<class T>
struct LocalBlock {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  std::vector<runtime::Offset> row_offsets;  // [num_rows + 1]
  std::vector<runtime::LocalColumn> columns; // [nnz] ascending within a row, no self loops
  std::vector<T> values;                     // [nnz]; empty: a pattern
  std::vector<std::uint16_t> relations;      // [nnz]; empty unless the block has relations
  std::vector<T> row_scale;                  // [num_rows] r; empty: all 1
  std::vector<T> column_scale;               // [num_columns] s; empty: all 1
  std::vector<runtime::LocalColumn>
      self_columns; // [num_rows] column of the row's vertex if it has a self loop, or with relations; or -1
  std::vector<T> self_scale;     // [num_rows] r_i s_i v_ii; undefined if that is -1
  std::int64_t num_features = 0; // of an edge
  /// [(nnz + num_rows) x num_features] of the entries, then of the self loops of the rows; these of added ones are means over the whole graph.
  std::vector<T> features;
};

/// Source of r and s: the scales of A^, or the degrees d within the batch with r = s = d^-1/2 or r = 1/d. `none`: entries have relations.
enum class BlockScales : std::uint8_t { of_graph, symmetric_in_batch, row_in_batch, none };

/// The rectangle of A^ of that parity with the store's normalization, or of A with relations. Not collective and may throw: call it inside together().
template<class T>
[[nodiscard]] LocalBlock<T> read_local_block(graph::GraphStore const& store, graph::Parity parity, Range rows,
                                             Range columns, BlockScales scales);

/// The block of A^ whose rows and columns are lists of ranges of order p1. Not collective and may throw: call it inside together().
template<class T>
[[nodiscard]] LocalBlock<T> read_local_block(graph::GraphStore const& store, graph::Ranges const& rows,
                                             graph::Ranges const& columns, BlockScales scales);

/// A block of A~ with rows and columns numbered within the batch: row i is the i-th sampled row of the range.
template<class T>
struct SampledBlock {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  std::int64_t num_groups = 1;               // strata
  std::vector<runtime::Offset> row_offsets;  // [num_rows + 1]
  std::vector<runtime::LocalColumn> columns; // [nnz] ascending within a row, no self loops
  std::vector<T> values;                     // [nnz] v; empty: a pattern
  std::vector<std::uint16_t>
      relations; // [nnz]; empty unless the block has relations, and then without scales
  std::vector<std::int32_t>
      relation_counts; // [nnz] neighbors of the entry's row and relation in the batch, on all ranks
  std::vector<runtime::Offset> relation_offsets; // [num_rows + 1] with relations
  std::vector<std::uint16_t>
      row_relations;           // relations of each row's neighbors in the batch, on all ranks, ascending
  std::vector<T> row_scale;    // [num_rows]
  std::vector<T> column_scale; // [num_groups x num_columns]
  std::vector<std::int8_t> row_groups; // [num_rows] row of column_scale; empty: all 0
  std::vector<runtime::LocalColumn>
      self_columns;          // [num_rows] column of the row's self loop, with relations of its vertex; or -1
  std::vector<T> self_scale; // [num_rows] weight of that self loop; 0 if there is none
  /// [nnz] and [num_rows] rows of LocalBlock::features; empty unless edges have features. Only of the block, not of its transpose.
  std::vector<runtime::Offset> entries, self_entries;

  [[nodiscard]] std::int64_t num_nonzeros() const { return static_cast<std::int64_t>(columns.size()); }
};

/// A~ and A~^T of one block. With relations only the block is made.
template<class T>
struct SampledPair {
  SampledBlock<T> block;
  SampledBlock<T> transposed;
};

template<class T>
class BlockSampler {
 public:
  /// Throws Error if lengths do not match. For degrees within the batch, existing self loops of `block` must have weight 1.
  explicit BlockSampler(LocalBlock<T> block, BlockScales scales = BlockScales::of_graph);

  [[nodiscard]] LocalBlock<T> const& block() const { return block_; }
  [[nodiscard]] BlockScales scales() const { return scales_; }

  /// out := the block on these rows and columns. `filter` must select `columns.positions`. Local. Reuses the arrays of `out`. Cost:
  /// O(nonzeros of the sampled rows + sampled rows and columns).
  void sample(SampledVertices const& rows, SampledVertices const& columns, ColumnFilter const& filter,
              BatchKeys const& keys, SampledPair<T>& out);

 private:
  void gather(SampledVertices const& rows, ColumnFilter const& filter, SampledBlock<T>& out);
  void transpose(SampledBlock<T> const& from, SampledBlock<T>& to);
  void scale(SampledVertices const& rows, SampledVertices const& columns, BatchKeys const& keys,
             SampledPair<T>& out) const;
  void renormalize(SampledVertices const& rows, SampledVertices const& columns, SampledPair<T>& out) const;
  /// The columns of the rows' vertices, for entries with relations.
  void find_own_columns(SampledVertices const& rows, ColumnFilter const& filter, SampledBlock<T>& out) const;
  void find_self_loops(SampledVertices const& rows, ColumnFilter const& filter, SampledPair<T>& out) const;

  LocalBlock<T> block_;
  BlockScales scales_;
  std::vector<runtime::LocalColumn> kept_columns_; // scratch; as long as the longest sampled rows so far
  std::vector<T> kept_values_;
  std::vector<std::uint16_t> kept_relations_;
  std::vector<runtime::Offset> kept_entries_;
  std::vector<runtime::Offset> next_; // scratch of the transpose
};

extern template class BlockSampler<float>;
extern template class BlockSampler<double>;

} // namespace orthant::sampling
