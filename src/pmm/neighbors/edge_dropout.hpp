#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Dropout of edges (DropEdge): every entry v_ij of a block with i != j is dropped with probability p, and the kept
// entries are scaled:
//
//   v'_ij := v_ij M_ij / (1 - p)          v'_ii := v_ii
//
// M_ij is one draw for both directions of an edge, keyed by the smaller and the larger original id of its ends. So v'
// is symmetric if v is, and the same on every grid. The row and column scales (spmm/local_spmm.hpp) of the whole graph
// remain in use. Source: Rong, Huang, Xu & Huang (arXiv 1907.10903), section 3, but without normalizing the dropped
// matrix again; the scale 1 / (1 - p) is the usual scale of dropout.

#include "pmm/edges/edge_block.hpp"
#include "pmm/spmm/local_spmm.hpp"
#include "runtime/numbers/random.hpp"

#include <vector>

namespace orthant::pmm {

/// The entries of a block, and the values of the current step. A copy shares all arrays.
template<class T>
struct DroppedBlock {
  CsrMatrix<T> whole;              // the entries without dropout
  Vector<T> values;                // [non-zeros] v', written by drop_entries()
  Vector<std::int64_t> row_ids;    // [rows] original ids
  Vector<std::int64_t> column_ids; // [columns]
};

/// Returns the block with newly allocated values, which drop_entries() must fill, and appends the DroppedBlock for
/// drop_entries() to `all`. Call at set-up.
template<class T>
[[nodiscard]] SparseBlock<T> with_dropped_values(SparseBlock<T> block, Vector<std::int64_t> const& row_ids,
                                                 Vector<std::int64_t> const& column_ids,
                                                 std::vector<DroppedBlock<T>>& all);
/// As above, with the caller's memory `values`, one element per non-zero.
template<class T>
[[nodiscard]] SparseBlock<T>
with_dropped_values(SparseBlock<T> block, Vector<T> const& values, Vector<std::int64_t> const& row_ids,
                    Vector<std::int64_t> const& column_ids, std::vector<DroppedBlock<T>>& all);
/// Adds the array of values to `step`.
void plan_dropped_values(StepPlan& step, std::int64_t num_nonzeros);

/// Writes block.values. If `probability` is 0, they are the values without dropout. Enqueues on exec; does not fence. Adds
/// one pass to `passes`.
template<class T>
void drop_entries(DefaultExec const& exec, runtime::PassLedger& passes, DroppedBlock<T> const& block,
                  double probability, runtime::RandomStream const& stream);
/// Adds the pass of drop_entries() to `step`.
void plan_drop_entries(StepPlan& step, std::int64_t num_nonzeros, bool has_values, bool draws);

} // namespace orthant::pmm
