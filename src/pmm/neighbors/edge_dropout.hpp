#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Dropout of edges (DropEdge): every entry v_ij of a block with i != j is dropped with probability p, and the others
// are scaled:
//
//   v'_ij := v_ij M_ij / (1 - p)          v'_ii := v_ii
//
// M_ij is one draw for both directions of an edge, keyed by the smaller and the larger of the original ids of its ends:
// v' is symmetric if v is, and the same on every grid. Row and column scales (spmm/local_spmm.hpp) stay those of the
// whole graph. Source: Rong, Huang, Xu & Huang (arXiv 1907.10903), section 3, without normalising anew; the scale is
// that of dropout.

#include "pmm/edges/edge_block.hpp"
#include "pmm/spmm/local_spmm.hpp"
#include "runtime/numbers/random.hpp"

#include <vector>

namespace orthant::pmm {

/// The entries of a block, and where those of a step lie. A copy shares all.
template<class T>
struct DroppedBlock {
  CsrMatrix<T> whole;              // as it was read
  Vector<T> values;                // [non-zeros] v', once drop_entries() has run
  Vector<std::int64_t> row_ids;    // [rows] original ids
  Vector<std::int64_t> column_ids; // [columns]
};

/// The block with values of its own, to be filled by drop_entries(); `all` gets what fills them. For set-up.
template<class T>
[[nodiscard]] SparseBlock<T> with_dropped_values(SparseBlock<T> block, Vector<std::int64_t> const& row_ids,
                                                 Vector<std::int64_t> const& column_ids,
                                                 std::vector<DroppedBlock<T>>& all);
/// The same in lent memory: a number per non-zero.
template<class T>
[[nodiscard]] SparseBlock<T>
with_dropped_values(SparseBlock<T> block, Vector<T> const& values, Vector<std::int64_t> const& row_ids,
                    Vector<std::int64_t> const& column_ids, std::vector<DroppedBlock<T>>& all);
/// Lists its array.
void plan_dropped_values(StepPlan& step, std::int64_t num_nonzeros);

/// Fills the values; `probability` 0: with those that were read. Enqueues on exec; does not fence. Counts a pass, by what it
/// reads and writes of each entry.
template<class T>
void drop_entries(DefaultExec const& exec, runtime::PassLedger& passes, DroppedBlock<T> const& block,
                  double probability, runtime::RandomStream const& stream);
/// Lists it.
void plan_drop_entries(StepPlan& step, std::int64_t num_nonzeros, bool has_values, bool draws);

} // namespace orthant::pmm
