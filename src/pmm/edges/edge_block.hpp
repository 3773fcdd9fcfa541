#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The pattern of a sparse block, whose entries are edges: edge e leads from column columns[e] to its row. The same edges by
// column, because adjoints sum over the rows of each column. Numbers of edges lie in row-major arrays [edges x heads].

#include "pmm/cost/step_plan.hpp"
#include "pmm/edges/edge_kernels_host.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/arrays/views.hpp"

#include <cstdint>

namespace orthant::pmm {

using runtime::CsrMatrix;
using runtime::DefaultExec;
using runtime::LocalColumn;
using runtime::Offset;
using runtime::Vector;

/// Shares the pattern with the block that it was made of. A copy shares all.
struct EdgeBlock {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  Vector<Offset> row_offsets;    // [num_rows + 1]
  Vector<LocalColumn> columns;   // [edges]
  Vector<Offset> column_offsets; // [num_columns + 1] into:
  Vector<LocalColumn> rows;      // [edges], ascending within a column
  Vector<Offset> places;         // [edges], where that edge is in `columns`

  [[nodiscard]] std::int64_t num_edges() const { return static_cast<std::int64_t>(columns.extent(0)); }
};

/// Sizes of a block that need not exist.
struct EdgeCounts {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t edges = 0;
};
[[nodiscard]] inline EdgeCounts counts_of(EdgeBlock const& block) {
  return {block.num_rows, block.num_columns, block.num_edges()};
}

/// Heads of this rank, and columns of each.
struct Heads {
  std::int64_t count = 1;
  std::int64_t width = 1;
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t columns() const { return count * width; }
};

/// For set-up: through the host, O(edges + rows + columns). At most 2^31 rows (Error).
template<class T>
[[nodiscard]] EdgeBlock make_edge_block(CsrMatrix<T> const& csr);
/// Lists its arrays, without those that it shares.
void plan_edge_block(StepPlan& step, EdgeCounts const& counts);

/// body(row, head) for all of them, in any order. Enqueues on exec; does not fence.
template<class Body>
void for_each_row_and_head(DefaultExec const& exec, char const* label, std::int64_t num_rows,
                           std::int64_t num_heads, Body const& body) {
  if (num_rows * num_heads == 0) return;
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, num_rows * num_heads),
      KOKKOS_LAMBDA(std::int64_t k) { body(k / num_heads, k % num_heads); });
}

// The kernels of host processors (edge_kernels_host.hpp) on blocks of edges.

[[nodiscard]] inline host_edges::HostEdges lists_of_rows(EdgeBlock const& block, Heads const& heads) {
  return {block.row_offsets.data(), block.columns.data(), nullptr, heads.count, heads.width};
}
[[nodiscard]] inline host_edges::HostEdges lists_of_columns(EdgeBlock const& block, Heads const& heads) {
  return {block.column_offsets.data(), block.rows.data(), block.places.data(), heads.count, heads.width};
}

/// kernel(arguments, begin, end) for parts that cover all lists; nothing of no heads. Enqueues on exec; does not fence.
template<class Arguments>
void for_each_list(DefaultExec const& exec, char const* label, std::int64_t num_lists, std::int64_t num_heads,
                   void (*kernel)(Arguments const&, std::int64_t, std::int64_t), Arguments const& arguments) {
  if (num_lists * num_heads == 0) return;
  for_each_part(exec, label, num_lists,
                [=](std::int64_t begin, std::int64_t end) { kernel(arguments, begin, end); });
}

} // namespace orthant::pmm
