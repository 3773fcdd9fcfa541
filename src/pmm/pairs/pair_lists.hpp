#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Lists of pairs (i, j): row i of one matrix, row j of another one. They are an EdgeBlock, so they are listed by i and by j, but
// the lists may be replaced by others, such as those of the next step, in memory that grows only.

#include "pmm/edges/edge_block.hpp"
#include "runtime/arrays/allocation.hpp"

#include <span>
#include <string>
#include <vector>

namespace orthant::pmm {

class PairLists {
 public:
  /// No pairs yet, of `num_rows` and `num_columns` rows: at most 2^31 of each (Error). Memory for `capacity` pairs.
  PairLists(std::int64_t num_rows, std::int64_t num_columns, std::int64_t capacity);

  /// The pairs of row i are columns[offsets[i]] to columns[offsets[i + 1]], in any order and with repeats. Throws Error unless there
  /// is an offset per row and one more. Allocates only if there are more pairs than ever. What was enqueued on the lists before must
  /// be done. O(pairs + rows + columns) on the host; not collective.
  void set(std::span<Offset const> offsets, std::span<LocalColumn const> columns);

  [[nodiscard]] EdgeBlock const& block() const { return block_; }
  [[nodiscard]] std::int64_t size() const { return block_.num_edges(); }

 private:
  runtime::GrowingVector<LocalColumn> columns_, rows_;
  runtime::GrowingVector<Offset> places_;
  std::vector<Offset> column_offsets_, next_; // on the host
  std::vector<LocalColumn> listed_rows_;
  std::vector<Offset> listed_places_;
  EdgeBlock block_;
};

/// Lists its arrays, those of the host included, for `counts.edges` pairs.
void plan_pair_lists(StepPlan& step, EdgeCounts const& counts);

} // namespace orthant::pmm
