#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The sum of a residual stream and what a block adds to it, with dropout:
//
//   to := base + M from                   backward:  d_from := M d_to,   d_base := d_to
//
// M is 0 with probability p, else 1 / (1 - p), keyed by the number of the token and the global column, so that it is the same
// on every grid; without dropout it is 1.

#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>

namespace orthant::pmm {

/// Dropout of rows of tokens.
struct RowDropout {
  double probability = 0; // 0: no mask; else below 1
  runtime::RandomStream stream{0, runtime::Purpose::dropout};
  runtime::Vector<std::int64_t> token_ids; // [rows] numbers of the tokens over all ranks
  std::int64_t first_column = 0;           // global number of the first column of this rank
};

/// to := base + M from, element by element; `to` may be base or from. Without dropout also no token_ids. Enqueues on exec;
/// does not fence. Counts the pass. T: float or double.
template<class T>
void add_dropped(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                 runtime::Matrix<T> const& base, runtime::Matrix<T> const& from, RowDropout const& dropout,
                 runtime::Matrix<T> const& to);

/// to := M from; `to` may be from.
template<class T>
void drop_rows(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& from,
               RowDropout const& dropout, runtime::Matrix<T> const& to);

/// List the passes.
void plan_add_dropped(StepPlan& step, std::int64_t num_rows, std::int64_t num_columns, bool draws_mask);
void plan_drop_rows(StepPlan& step, std::int64_t num_rows, std::int64_t num_columns, bool draws_mask);

} // namespace orthant::pmm
