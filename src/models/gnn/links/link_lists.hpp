#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The links of a rank's block, on the host: pairs (row, column) of places in its lists of rows and columns (pmm/aggregate/cells.hpp).
// Every link has one block: that of its first end's row and its second end's column, and the ranks along b share it.

#include "graph/store/listed_block.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/comm/collectives.hpp"
#include "sampling/key_table.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::models {

/// By row, as CSR without values.
struct LinkLists {
  std::vector<runtime::Offset> offsets{0};   // [rows + 1]
  std::vector<runtime::LocalColumn> columns; // [links]

  [[nodiscard]] std::int64_t size() const { return std::ssize(columns); }
};

/// The links among the entries of a block of A: of A[u,v] and A[v,u] the one that link_between() names, and no self loop.
[[nodiscard]] LinkLists training_links(graph::CsrBlock const& block, std::span<std::int64_t const> row_ids,
                                       std::span<std::int64_t const> column_ids);

/// Those of the store's links whose ends are in these lists. Reads all of them, some at a time. Not collective; throws as the store
/// does.
[[nodiscard]] LinkLists held_out_links(graph::GraphStore const& store, graph::Split part,
                                       graph::LinkKind kind, graph::Ranges const& rows,
                                       graph::Ranges const& columns);

/// Original ids of these positions of order p1, range after range. Not collective; throws as the store does.
[[nodiscard]] std::vector<std::int64_t> ids_of(graph::GraphStore const& store, graph::Ranges const& ranges);

// The negatives that an epoch trains on, drawn without a message. There is one for each of the E edges, and number k of them is
//
//   u := pi(k mod N)          pi: a keyed bijection of the N vertices, so first ends are spread evenly over all vertices
//   w := uniform over the others, keyed by k
//
// keyed by (seed, epoch), in original ids: so they depend neither on the grid nor on the order of the vertices. Row u of a block
// asks the inverse of pi which numbers are its own, and keeps those whose w is one of the block's columns. A pair that is an edge
// of A counts nothing: the block that would have it has that entry of A, too.

class NegativeLinks {
 public:
  /// For this block of A, of rows and columns with these original ids, in a graph of `num_vertices` and `num_edges`.
  NegativeLinks(graph::CsrBlock block, std::vector<std::int64_t> row_ids,
                std::span<std::int64_t const> column_ids, std::int64_t num_vertices, std::int64_t num_edges,
                std::uint64_t seed);

  /// This block's, valid until the next call. Cost: a hash for each of the rows' negatives, about E / (ranks along c). Not
  /// collective.
  [[nodiscard]] LinkLists const& draw(std::uint64_t epoch);

  /// How many of them a block has on average, and a number that hardly any block and epoch exceeds.
  [[nodiscard]] static std::int64_t mean_count(std::int64_t num_rows, std::int64_t num_columns,
                                               std::int64_t num_vertices, std::int64_t num_edges);
  [[nodiscard]] static std::int64_t capacity(std::int64_t mean_count);
  /// Bytes held beside the lists, for blocks of these sizes.
  [[nodiscard]] static std::int64_t num_bytes(std::int64_t num_rows, std::int64_t num_columns,
                                              std::int64_t num_entries, std::int64_t num_vertices);

 private:
  [[nodiscard]] bool is_edge(std::size_t row, std::int32_t column) const;

  graph::CsrBlock block_; // columns ascend within a row
  std::vector<std::int64_t> row_ids_;
  sampling::KeyTable columns_;
  std::uint64_t num_vertices_;
  std::uint64_t num_edges_;
  std::uint64_t seed_;
  LinkLists drawn_;
};

} // namespace orthant::models
