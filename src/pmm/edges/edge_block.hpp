#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The edges of a sparse block (EdgeBlock), and the exchange of rows between their owners and the blocks (BlockRows).
// Each stored entry of a block is an edge; edge e leads from column columns[e] to its row. The block also lists its edges by
// column, because adjoints sum over the rows of each column. Values of edges are row-major arrays [edges x heads].

#include "pmm/aggregate/needed_rows.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/edges/edge_kernels_host.hpp"
#include "pmm/grid/process_grid.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/counts.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace orthant::pmm {

using runtime::CsrMatrix;
using runtime::DefaultExec;
using runtime::LocalColumn;
using runtime::Offset;
using runtime::Vector;

/// Pattern of a sparse block, by rows and by columns. It shares the arrays of the CSR matrix that it was made from; a copy
/// shares all arrays.
struct EdgeBlock {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  Vector<Offset> row_offsets;    // [num_rows + 1]
  Vector<LocalColumn> columns;   // [edges]
  Vector<Offset> column_offsets; // [num_columns + 1] offsets into `rows` and `places`
  Vector<LocalColumn> rows;      // [edges], ascending within a column
  Vector<Offset> places;         // [edges], the index of the edge in `columns`

  [[nodiscard]] std::int64_t num_edges() const { return static_cast<std::int64_t>(columns.extent(0)); }
};

/// Sizes of a block, for plans that have no block.
struct EdgeCounts {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t edges = 0;
  std::int64_t features = 0; // of each edge
};
[[nodiscard]] inline EdgeCounts counts_of(EdgeBlock const& block) {
  return {block.num_rows, block.num_columns, block.num_edges()};
}

/// Number of heads, and columns per head.
struct Heads {
  std::int64_t count = 1;
  std::int64_t width = 1;
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t columns() const { return count * width; }
};

/// Lists the edges of `csr` by column. Call at set-up: it runs on the host, in O(edges + rows + columns). Columns must
/// ascend within each row. `csr` must have less than 2^31 rows; otherwise throws Error.
template<class T>
[[nodiscard]] EdgeBlock make_edge_block(CsrMatrix<T> const& csr);
/// Adds the arrays of an EdgeBlock to `step`, without the ones that it shares with the CSR matrix.
void plan_edge_block(StepPlan& step, EdgeCounts const& counts);

/// Calls body(row, head) for all rows and heads, in any order. Enqueues on exec; does not fence.
template<class Body>
void for_each_row_and_head(DefaultExec const& exec, char const* label, std::int64_t num_rows,
                           std::int64_t num_heads, Body const& body) {
  if (num_rows * num_heads == 0) return;
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, num_rows * num_heads),
      KOKKOS_LAMBDA(std::int64_t k) { body(k / num_heads, k % num_heads); });
}

// Arguments of the host kernels (edge_kernels_host.hpp) for a block of edges.

[[nodiscard]] inline host_edges::HostEdges lists_of_rows(EdgeBlock const& block, Heads const& heads) {
  return {block.row_offsets.data(), block.columns.data(), nullptr, heads.count, heads.width};
}
[[nodiscard]] inline host_edges::HostEdges lists_of_columns(EdgeBlock const& block, Heads const& heads) {
  return {block.column_offsets.data(), block.rows.data(), block.places.data(), heads.count, heads.width};
}

/// Calls kernel(arguments, begin, end) for parts that cover all lists; does nothing if there are no heads. Enqueues on exec;
/// does not fence.
template<class Arguments>
void for_each_list(DefaultExec const& exec, char const* label, std::int64_t num_lists, std::int64_t num_heads,
                   void (*kernel)(Arguments const&, std::int64_t, std::int64_t), Arguments const& arguments) {
  if (num_lists * num_heads == 0) return;
  for_each_part(exec, label, num_lists,
                [=](std::int64_t begin, std::int64_t end) { kernel(arguments, begin, end); });
}

// Exchange of rows between their owners and the blocks that read them (aggregate/cells.hpp). A rank owns n rows of H heads
// with d columns each, and gets whole heads: H_b heads are its part of axis b.
//
//   columns   B[j,:] := row of column j of the block     exchange over b, all_gather over c      [n x H d]  ->  [n_a x H_b d]
//   rows      B[i,:] := row of row i of the block        exchange over b, all_gather over a      [n x H d]  ->  [m_c x H_b d]
//
// The adjoint sums the addends of all blocks for each row: reduce_scatter over the same axis, exchange over b. In each
// direction, a rank sends
//   (G - 1) u + (G_b - 1) / G_b u   words,   u = N H d / P,   G: ranks of the gather's axis
// An axis of one rank costs nothing. If has_copy() is false, nothing is copied. These are steps 1 and 2, or 4 and 5, of an
// aggregation (aggregate.hpp) without its product.
//
// The gather and the sum may move only the rows of the block that have an edge (aggregate/needed_rows.hpp), in an all_to_all. The block
// keeps all its rows and columns, because a softmax over a row sums over ranks that have other edges of it. Rows of B without an edge are
// then not written.

/// The lists of rows that move along an axis (NeededSlabs), in memory that kernels can read.
struct MovedRows {
  Vector<LocalColumn> touched, asked;
  Vector<Offset> addend_offsets, addends;
};
/// Empty lists if all rows move.
[[nodiscard]] MovedRows make_moved_rows(std::optional<NeededSlabs> const& slabs);

/// Whose rows a block gathers: those of the vertices that are its columns, or of the vertices that are its rows.
enum class BlockSide : std::uint8_t { columns, rows };

struct BlockRowsPlan {
  Roles roles;
  CellSizes sizes;
  BlockSide side = BlockSide::columns;
  Heads heads;                          // all heads, not only this rank's
  std::int64_t stride = 0;              // columns of the owners' matrix, which holds these heads side by side
  std::int64_t first_column = 0;        // column of the owners' matrix where the first head begins
  std::optional<NeededCounts> needed{}; // of the side's axis; nullopt: all rows move
  runtime::Wire wire = runtime::Wire::native; // number format of all messages
};

/// Sizes of the exchange on one rank. BlockRows and the cost model both use them.
struct BlockRowsSteps {
  BlockRowsSteps(GridShape const& shape, Coordinates const& coordinates, BlockRowsPlan const& plan);

  Axis axis{}; // of the gather
  Heads part;  // this rank's heads
  std::int64_t first_head = 0;
  std::int64_t num_own = 0, num_slab = 0, num_block = 0; // rows
  std::int64_t slab_begin = 0;                           // first row of the own slab in the block
  std::int64_t width = 0, stride = 0, first_column = 0;
  int num_parts = 1; // ranks of b
  bool must_exchange = false, must_gather = false, moves_needed = false;
  bool is_strided = false; // the heads are only a part of the columns of the owners' matrix
  // [ranks of b] columns: columns: elements of this rank's rows in the heads of each rank; rows: elements of each rank's rows in this
  // rank's heads.
  std::vector<std::int64_t> columns, rows;
  std::vector<std::int64_t> slabs; // [ranks of the axis] elements of the block that each rank sends
  // If moves_needed: [ranks of the axis] elements of each rank's slab in this rank's block, and of this rank's slab in theirs.
  std::vector<std::int64_t> touched, asked;

  /// True if the block's rows are a copy; otherwise the block reads the owner's memory.
  [[nodiscard]] bool has_copy() const { return must_exchange || must_gather || moves_needed || is_strided; }
  [[nodiscard]] std::int64_t num_in_block() const { return num_block * part.columns(); }
  [[nodiscard]] std::int64_t num_in_slab() const { return num_slab * part.columns(); }
  /// True if the slab needs memory of its own: it is neither a part of the block nor the owner's memory.
  [[nodiscard]] bool has_slab() const {
    return must_exchange || (is_strided && (must_gather || moves_needed));
  }
  [[nodiscard]] std::int64_t num_touched() const { return runtime::sum_of(touched); }
  [[nodiscard]] std::int64_t num_asked() const { return runtime::sum_of(asked); }
};

/// Reserves the buffers of BlockRows. `Work` is a Workspace or a WorkspacePlan; its buffers are used only within each call.
template<class Work>
void reserve_block_rows(Work& work, BlockRowsSteps const& steps) {
  if (steps.must_exchange) work.reserve(Slot::left, steps.num_own * steps.width);
  if (steps.has_slab()) work.reserve(Slot::right, steps.num_in_slab());
  work.reserve(Slot::left, steps.num_asked());
  work.reserve(Slot::result, steps.num_touched());
}

template<class T>
class BlockRows {
 public:
  /// `grid` must outlive this object. `moved`: lists with the counts of plan.needed. Not collective.
  BlockRows(ProcessGrid const& grid, BlockRowsPlan const& plan, std::shared_ptr<Workspace<T>> workspace,
            MovedRows moved = {});

  [[nodiscard]] BlockRowsSteps const& steps() const { return steps_; }

  /// Gathers the block's rows B from `own`, the own rows of a row-major matrix [n x stride]. Returns `memory`
  /// [num_in_block()], which receives B, or `own` if has_copy() is false. Collective over axis b and the axis of the
  /// gather. Enqueues on exec.
  [[nodiscard]] Vector<T> bring(DefaultExec const& exec, Vector<T> const& own, Vector<T> const& memory) const;
  /// own := the sum of the rows of all blocks, in the columns of these heads; other columns keep their values. If
  /// has_copy() is false, `block` must be `own`; otherwise throws Error. If it is true, they must not overlap. Collective
  /// over axis b and the axis of the gather. Enqueues on exec.
  void bring_back(DefaultExec const& exec, Vector<T> const& block, Vector<T> const& own) const;

 private:
  ProcessGrid const* grid_;
  Roles roles_;
  runtime::Wire wire_;
  BlockRowsSteps steps_;
  std::shared_ptr<Workspace<T>> workspace_;
  MovedRows moved_;
};

// Columns of whole rows in balanced parts, one part after the other, as messages send them.

/// split: parts := the columns of `rows` [num_rows x width]. join: the inverse. Each counts as a pass. Enqueue on exec; the memory must not
/// overlap.
template<class T>
void split_columns(DefaultExec const& exec, runtime::PassLedger& passes, std::int64_t num_rows,
                   std::int64_t width, int num_parts, Vector<T> const& rows, Vector<T> const& parts);
template<class T>
void join_columns(DefaultExec const& exec, runtime::PassLedger& passes, std::int64_t num_rows,
                  std::int64_t width, int num_parts, Vector<T> const& parts, Vector<T> const& rows);
/// Adds the pass of either to `step`.
void plan_split_columns(StepPlan& step, std::int64_t num_rows, std::int64_t width);

/// Add one bring(), or one bring_back(), to `step`.
void plan_bring(StepPlan& step, BlockRowsPlan const& plan);
void plan_bring_back(StepPlan& step, BlockRowsPlan const& plan);

extern template class BlockRows<float>;
extern template class BlockRows<double>;

} // namespace orthant::pmm
