#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The links of a rank's block, on the host: pairs (row, column) of places in its lists of rows and columns (pmm/aggregate/cells.hpp).
// Every link has one block: that of its first end's row and its second end's column, and the ranks along b share it.

#include "graph/store/listed_block.hpp"
#include "runtime/comm/collectives.hpp"

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

} // namespace orthant::models
