#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A rank's share of a batch: the vertices of the ranges that it has to do with, and its blocks of A~.
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

// Degrees within a batch, without a message: the neighbours of the vertices of a range by key, whole rows of A
// without self loops, and a bit a vertex of the graph that tells who is in the batch.
//
//   d_i = s + sum of w_ij over the j of the batch           w = 1 in a pattern; s = 1 if a self loop is added, else 0
//
// Memory: 4 bytes for each non-zero of the rows (8 above 2^32 vertices, 4 more with weights) and 8 a row. A rank
// of a grid that cuts rows in R and columns in C holds so nnz (1/R + 1/C) entries for each pair of ranges that
// its blocks have, where its blocks have nnz / (R C).

/// Which keys are in the batch. N / 8 bytes; nothing of the size of the graph is ever cleared.
class KeyBits {
 public:
  KeyBits() = default;
  explicit KeyBits(std::int64_t num_vertices) : bits_(static_cast<std::size_t>((num_vertices + 63) / 64)) {}

  /// These keys, in place of those before.
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
  [[nodiscard]] std::int64_t num_bytes() const { return 8 * std::ssize(bits_); }

 private:
  std::vector<std::uint64_t> bits_;
  std::vector<std::int64_t> set_;
};

class NeighbourLists {
 public:
  NeighbourLists() = default;
  /// Of the vertices at these places of `order`. Reads their rows of A piece by piece of the columns. Collective
  /// over `comm`: every rank gives ranges of its own, maybe none.
  NeighbourLists(runtime::Communicator const& comm, graph::GraphStore const& store, SamplingKeys const& keys,
                 graph::Order order, graph::Ranges const& ranges);

  [[nodiscard]] bool empty() const { return offsets_.empty(); }
  /// degrees := d of the vertices at these places of the list of ranges. Cost: O(non-zeros of their rows).
  void find_degrees(std::span<std::int32_t const> places, KeyBits const& batch,
                    std::vector<double>& degrees) const;
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  double of_self_loop_ = 1;
  std::vector<std::int64_t> offsets_; // [places + 1]
  PackedIds keys_;                    // [non-zeros]
  std::vector<float> weights_;        // [non-zeros]; empty: a pattern
};

using graph::Parity;

/// A block of a builder: itself, or the transpose of one that it shares (A_odd = A_even^T).
struct BlockHandle {
  std::size_t index = 0;
  bool is_transposed = false;
  friend bool operator==(BlockHandle const&, BlockHandle const&) = default;
};

template<class T>
struct Batch {
  std::int64_t epoch = -1;
  std::int64_t index = -1;               // of the epoch's batches
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

template<class T>
class BatchBuilder {
 public:
  /// `comm`: the ranks that read the store together, all of one group or of all groups; it, the store and the
  /// sampler must outlive the builder. Collective over `comm`. Throws UserError if edges are to be renormalized
  /// and the store is not normalized.
  BatchBuilder(runtime::Communicator const& comm, graph::GraphStore const& store, Sampler const& sampler,
               BatchEdges edges = BatchEdges::rescale);

  /// A range of rows or columns, its number in Batch::vertices. One that is there already is not made again.
  /// Reads the store. Collective over `comm`: every rank adds as many, in the same order, each its own.
  std::size_t add_range(Order order, Range range) { return add_ranges(order, {range}); }
  /// The same of several ranges, one after the other: batches give places in that list as positions.
  std::size_t add_ranges(Order order, graph::Ranges const& ranges);

  /// Batches tell, from now on, where the vertices of range number `range` are in the other order. Reads the
  /// store. Collective over `comm`, as above.
  void add_other_positions(std::size_t range);

  /// A block of A^ of that parity, with its two ranges. Where A~ is symmetric (A^ is, and m(a, b) = m(b, a)), a
  /// block and the other parity's transposed one are the same. Reads the store. Collective over `comm`, as
  /// above.
  BlockHandle add_block(Parity parity, Range rows, Range columns);
  /// The same of rows and columns that are lists of order p1.
  BlockHandle add_block(graph::Ranges const& rows, graph::Ranges const& columns);

  /// Fills `batch`, whose arrays are used again. Local: no communication, no Kokkos. Scratch is the
  /// builder's, so one call at a time; any thread. Cost: O(B) for each range, and O(non-zeros of the sampled
  /// rows) for each block; to renormalize, for each range those of its sampled rows of all of A.
  void build(std::int64_t epoch, std::int64_t index, Batch<T>& batch);

  [[nodiscard]] Sampler const& sampler() const { return sampler_; }
  /// Bytes held by tables and blocks, without the batches.
  [[nodiscard]] std::int64_t num_bytes() const;

 private:
  struct KnownRange {
    Order order;
    graph::Ranges ranges;
    LocalVertices vertices;
    ColumnFilter filter;       // of no columns where the range is rows only
    NeighbourLists neighbours; // where edges are renormalized
  };
  struct KnownBlock {
    std::optional<Parity> parity; // none: of lists
    std::size_t rows;
    std::size_t columns;
    BlockSampler<T> sampler;
  };

  void add_neighbours(std::size_t range);
  [[nodiscard]] BlockScales scales() const;
  [[nodiscard]] std::size_t find_block(std::optional<Parity> parity, std::size_t rows,
                                       std::size_t columns) const;
  /// Keeps the block that `read` returns, unless handle names one that is there. Collective.
  template<class Read>
  void keep_block(BlockHandle handle, std::optional<Parity> parity, std::size_t rows, std::size_t columns,
                  Read const& read);

  runtime::Communicator const& comm_;
  graph::GraphStore const& store_;
  Sampler const& sampler_;
  BatchEdges edges_;
  SamplingKeys keys_;
  KeyBits batch_keys_; // where edges are renormalized
  std::vector<KnownRange> ranges_;
  std::vector<KnownBlock> blocks_;
};

extern template class BatchBuilder<float>;
extern template class BatchBuilder<double>;

} // namespace orthant::sampling
