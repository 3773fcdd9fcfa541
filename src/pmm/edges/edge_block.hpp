#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The pattern of a sparse block, whose entries are edges: edge e leads from column columns[e] to its row. The same edges by
// column, because adjoints sum over the rows of each column. Numbers of edges lie in row-major arrays [edges x heads].
//
// Rows of owners where a block reads them, and back (aggregate/cells.hpp). A rank owns n rows of H heads, d columns each, and
// gets whole heads: H_b of them fall to its part of axis b.
//
//   columns   B[j,:] := row of column j of the block     exchange over b, all_gather over c      [n x H d]  ->  [n_a x H_b d]
//   rows      B[i,:] := row of row i of the block        exchange over b, all_gather over a      [n x H d]  ->  [m_c x H_b d]
//
// The adjoint adds up what all blocks have of a row: reduce_scatter over the same axis, exchange over b. A rank sends
// (G - 1) u + (G_b - 1) / G_b u words, u = N H d / P, in each direction. An axis of one rank costs nothing, and if nothing moves
// there is no copy. Steps 1 and 2, or 4 and 5, of an aggregation (aggregate.hpp), apart from its product.

#include "pmm/aggregate/cells.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/edges/edge_kernels_host.hpp"
#include "pmm/grid/process_grid.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"
#include "runtime/arrays/views.hpp"

#include <cstdint>
#include <memory>
#include <vector>

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

/// Whose rows: those that are columns of the block, or rows.
enum class BlockSide : std::uint8_t { columns, rows };

struct BlockRowsPlan {
  Roles roles;
  CellSizes sizes;
  BlockSide side = BlockSide::columns;
  Heads heads;                   // all of them
  std::int64_t stride = 0;       // columns of the matrix that has these heads side by side
  std::int64_t first_column = 0; // of that matrix
};

/// What one rank does, without numbers: what the runner runs and what a list holds.
struct BlockRowsSteps {
  BlockRowsSteps(GridShape const& shape, Coordinates const& coordinates, BlockRowsPlan const& plan);

  Axis axis{}; // of the gather
  Heads part;  // this rank's heads
  std::int64_t first_head = 0;
  std::int64_t num_own = 0, num_slab = 0, num_block = 0; // rows
  std::int64_t slab_begin = 0;                           // row of the block where the own slab begins
  std::int64_t width = 0, stride = 0, first_column = 0;
  int num_parts = 1; // ranks of b
  bool must_exchange = false, must_gather = false;
  bool is_strided = false;                 // the heads are a part of the columns
  std::vector<std::int64_t> columns, rows; // [ranks of b] elements of the own rows, and of the own heads
  std::vector<std::int64_t> slabs;         // [ranks of the axis] elements of the block

  /// Whether the block's rows lie in memory of their own.
  [[nodiscard]] bool has_copy() const { return must_exchange || must_gather || is_strided; }
  [[nodiscard]] std::int64_t num_in_block() const { return num_block * part.columns(); }
  [[nodiscard]] std::int64_t num_in_slab() const { return num_slab * part.columns(); }
};

/// `Work`: a Workspace or a WorkspacePlan, which is used within each call only.
template<class Work>
void reserve_block_rows(Work& work, BlockRowsSteps const& steps) {
  if (steps.must_exchange) work.reserve(Slot::left, steps.num_own * steps.width);
  if (steps.must_exchange || (steps.must_gather && steps.is_strided))
    work.reserve(Slot::right, steps.num_in_slab());
}

template<class T>
class BlockRows {
 public:
  /// `grid` must outlive it. Not collective.
  BlockRows(ProcessGrid const& grid, BlockRowsPlan const& plan, std::shared_ptr<Workspace<T>> workspace);

  [[nodiscard]] BlockRowsSteps const& steps() const { return steps_; }

  /// B from the own rows of a row-major matrix [n x stride]. Returns memory [num_in_block()] or, if nothing moves, `own`.
  /// Collective over b and the axis of the gather. Enqueues on exec.
  [[nodiscard]] Vector<T> bring(DefaultExec const& exec, Vector<T> const& own, Vector<T> const& memory) const;
  /// own := the sum over blocks of their rows, in these heads' columns; other columns stay. Collective as bring(). If
  /// nothing moves, `block` is `own` (Error); else they do not overlap.
  void bring_back(DefaultExec const& exec, Vector<T> const& block, Vector<T> const& own) const;

 private:
  ProcessGrid const* grid_;
  Roles roles_;
  BlockRowsSteps steps_;
  std::shared_ptr<Workspace<T>> workspace_;
};

/// Lists either.
void plan_bring(StepPlan& step, BlockRowsPlan const& plan);
void plan_bring_back(StepPlan& step, BlockRowsPlan const& plan);

extern template class BlockRows<float>;
extern template class BlockRows<double>;

} // namespace orthant::pmm
