#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A rank's share of a batch: the vertices of its ranges of rows and columns, and its blocks of A~.
//
//   BatchBuilder<float> builder(world, store, sampler);                  // collective
//   auto const rows = builder.add_range(Order::p1, {0, 500});            // set-up, collective
//   auto const block = builder.add_block(Parity::even, {0, 500}, {500, 1000});
//   builder.build(epoch, batch_index, batch);                            // local, zero bytes, any thread
//   batch.vertices[rows].positions;  batch.forward(block);  batch.adjoint(block);

#include "graph/store/listed_block.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"
#include "sampling/block_sampler.hpp"
#include "sampling/key_table.hpp"
#include "sampling/sampler.hpp"
#include "sampling/sampling_keys.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace orthant::sampling {

// Degrees within a batch, computed without communication. Each rank stores the neighbors of the vertices of a range by key (whole rows of A
// without self loops), and one bit per vertex of the graph that is set if the vertex is in the batch.
//
//   d_i = s + sum of w_ij over the j of the batch           w = 1 in a pattern; s = 1 if a self loop is added, else 0
//
// With relations, it counts the neighbors of each relation instead: c_ir in the batch.
//
// Memory: 4 bytes per nonzero of the rows (8 above 2^32 vertices, 4 more with weights or 2 with relations) and 8 per row. In a grid that partitions rows into R
// and columns into C parts, a rank therefore holds nnz (1/R + 1/C) entries for each pair of ranges of its blocks, while the blocks
// themselves have nnz / (R C).

/// The set of keys of the batch, N / 8 bytes. No operation clears an array of the size of the graph.
class KeyBits {
 public:
  KeyBits() = default;
  explicit KeyBits(std::int64_t num_vertices) : bits_(static_cast<std::size_t>((num_vertices + 63) / 64)) {}

  /// Replaces the set by these keys.
  void set(std::span<std::int64_t const> keys) {
    for (auto const key : set_)
      bits_[static_cast<std::size_t>(key / 64)] = 0;
    set_.assign(keys.begin(), keys.end());
    for (auto const key : set_)
      bits_[static_cast<std::size_t>(key / 64)] |= std::uint64_t{1} << (key % 64);
  }
  [[nodiscard]] bool has(std::int64_t key) const {
    return (bits_[static_cast<std::size_t>(key / 64)] >> (key % 64) & 1U) != 0;
  }

 private:
  std::vector<std::uint64_t> bits_;
  std::vector<std::int64_t> set_;
};

class NeighbourLists {
 public:
  NeighbourLists() = default;
  /// Neighbor lists of the vertices at these places of `order`. Reads their rows of A in pieces of columns. Collective over `comm`: every
  /// rank passes its own ranges, possibly none.
  NeighbourLists(runtime::Communicator const& comm, graph::GraphStore const& store, SamplingKeys const& keys,
                 graph::Order order, graph::Ranges const& ranges, BatchEdges edges);

  [[nodiscard]] bool empty() const { return offsets_.empty(); }
  /// degrees := the degrees d within the batch, of the vertices at these positions of the list of ranges. Cost: O(nonzeros of their rows).
  void find_degrees(std::span<std::int32_t const> places, KeyBits const& batch,
                    std::vector<double>& degrees) const;
  /// block.relation_counts := the numbers of neighbors in the batch that the entry's row has of the entry's relation, and the lists of the
  /// relations of each row's neighbors. `places`: positions of the block's rows in the list of ranges. Cost: O(nonzeros of their rows).
  template<class T>
  void count_relations(std::span<std::int32_t const> places, KeyBits const& batch,
                       SampledBlock<T>& block) const;

  // The lists themselves: of the vertex at each place, keys of its neighbors and weights of the edges (empty for a pattern).
  [[nodiscard]] double of_self_loop() const { return of_self_loop_; }
  [[nodiscard]] std::vector<std::int64_t> const& offsets() const { return offsets_; }
  [[nodiscard]] PackedIds const& keys() const { return keys_; }
  [[nodiscard]] std::vector<float> const& weights() const { return weights_; }

 private:
  double of_self_loop_ = 1;
  std::int64_t num_relations_ = 0;
  std::vector<std::int64_t> offsets_;    // [places + 1]
  PackedIds keys_;                       // [non-zeros]
  std::vector<float> weights_;           // [non-zeros]; empty for a pattern
  std::vector<std::uint16_t> relations_; // [non-zeros]; empty without relations
};

using graph::Parity;

/// Refers to a block of a builder, or to a block that is the transpose of another and shares its memory (A_odd = A_even^T).
struct BlockHandle {
  std::size_t index = 0;
  bool is_transposed = false;
  friend bool operator==(BlockHandle const&, BlockHandle const&) = default;
};

template<class T>
struct Batch {
  std::int64_t epoch = -1;
  std::int64_t index = -1;               // among the epoch's batches
  BatchKeys keys;                        // all vertices of the batch: size() is |S|
  std::vector<SampledVertices> vertices; // by range
  std::vector<SampledPair<T>> blocks;    // by BlockHandle::index

  [[nodiscard]] SampledBlock<T> const& forward(BlockHandle handle) const {
    return handle.is_transposed ? blocks[handle.index].transposed : blocks[handle.index].block;
  }
  [[nodiscard]] SampledBlock<T> const& adjoint(BlockHandle handle) const {
    return forward({handle.index, !handle.is_transposed});
  }
};

/// A range of rows or columns, or a list of them, of which a builder finds the vertices of a batch.
struct KnownRange {
  Order order;
  graph::Ranges ranges;
  LocalVertices vertices;
  ColumnFilter filter;       // without columns if the range is only used for rows
  NeighbourLists neighbours; // only if edges are not rescaled; with relations only of rows
};
/// A block of A^, with the numbers of its ranges.
template<class T>
struct KnownBlock {
  std::optional<Parity> parity; // empty for blocks of lists
  std::size_t rows;
  std::size_t columns;
  BlockSampler<T> sampler;
};

template<class T>
class BatchBuilder {
 public:
  /// `comm` contains the ranks that read the store together: all ranks of one group or of all groups. `comm`, the store and the sampler
  /// must outlive the builder. Collective over `comm`. Throws UserError if edges are to be renormalized and the store is not normalized.
  BatchBuilder(runtime::Communicator const& comm, graph::GraphStore const& store, Sampler const& sampler,
               BatchEdges edges = BatchEdges::rescale);

  /// Adds a range of rows or columns and returns its number in Batch::vertices. A known range is not added again. Reads the store.
  /// Collective over `comm`: every rank must add the same number of ranges, in the same order; the ranges themselves may differ.
  std::size_t add_range(Order order, Range range) { return add_ranges(order, {range}); }
  /// Adds a list of ranges, one after the other. The positions in a batch are then places in that list.
  std::size_t add_ranges(Order order, graph::Ranges const& ranges);

  /// From now on, batches contain the positions in the other order for range number `range`. Reads the store. Collective over `comm`; all
  /// ranks must make the same calls.
  void add_other_positions(std::size_t range);

  /// Adds a block of A^ of that parity, with its two ranges. If A~ is symmetric (A^ is symmetric and m(a, b) = m(b, a)), a block shares its
  /// memory with the transposed block of the other parity. Reads the store. Collective over `comm`: every rank must add the same number of
  /// blocks, in the same order.
  BlockHandle add_block(Parity parity, Range rows, Range columns);
  /// Adds a block whose rows and columns are lists of ranges of order p1. Reads the store. Collective over `comm`: every rank must add the
  /// same number of blocks, in the same order.
  BlockHandle add_block(graph::Ranges const& rows, graph::Ranges const& columns);

  /// Fills `batch` and reuses its arrays. Local: no communication, no Kokkos. Uses scratch memory of the builder, so that only one call may
  /// run at a time, on any thread. Cost: O(B) per range, and O(nonzeros of the sampled rows) per block. To renormalize, each range also
  /// costs O(nonzeros of its sampled rows in all of A).
  void build(std::int64_t epoch, std::int64_t index, Batch<T>& batch);

  [[nodiscard]] Sampler const& sampler() const { return sampler_; }
  [[nodiscard]] BatchEdges edges() const { return edges_; }
  /// Features of the edges of a block, which SampledBlock::entries refer to.
  [[nodiscard]] std::span<T const> edge_features(BlockHandle block) const {
    return blocks_[block.index].sampler.block().features;
  }

  [[nodiscard]] std::vector<KnownRange> const& ranges() const { return ranges_; }
  [[nodiscard]] std::vector<KnownBlock<T>> const& blocks() const { return blocks_; }
  [[nodiscard]] std::int64_t num_vertices() const { return store_.facts().num_vertices; }

 private:
  void add_neighbours(std::size_t range);
  [[nodiscard]] BlockScales scales() const;
  [[nodiscard]] std::size_t find_block(std::optional<Parity> parity, std::size_t rows,
                                       std::size_t columns) const;
  /// Stores the block that `read` returns, unless `handle` refers to an existing block. Collective.
  template<class Read>
  void keep_block(BlockHandle handle, std::optional<Parity> parity, std::size_t rows, std::size_t columns,
                  Read const& read);

  runtime::Communicator const& comm_;
  graph::GraphStore const& store_;
  Sampler const& sampler_;
  BatchEdges edges_;
  SamplingKeys keys_;
  KeyBits batch_keys_; // only if edges are not rescaled
  std::vector<KnownRange> ranges_;
  std::vector<KnownBlock<T>> blocks_;
};

extern template class BatchBuilder<float>;
extern template class BatchBuilder<double>;

} // namespace orthant::sampling
