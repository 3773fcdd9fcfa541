#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Rows of sequences that C ranks share (SequencePart): the order in which an all_gather yields them, and the order of the tokens.
//
//   by part    [C x sequences x tokens of a rank]    the rows of rank 0, then those of rank 1, ..
//   by token   [sequences x tokens of a sequence]

#include "pmm/cost/step_plan.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/vendor/vendor_attention.hpp"

namespace orthant::pmm {

/// by_token := by_part in the order of the tokens. Both [shape.num_keys() x columns], without gaps between rows; otherwise throws Error.
/// Enqueues on exec; does not fence. Adds one pass to `passes`.
template<class T>
void order_by_token(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                    AttentionShape const& shape, Panel<T> const& by_part,
                    std::type_identity_t<Panel<T>> const& by_token);
/// The inverse: by_part := by_token in the order of the ranks.
template<class T>
void order_by_part(runtime::DefaultExec const& exec, runtime::PassLedger& passes, AttentionShape const& shape,
                   Panel<T> const& by_token, std::type_identity_t<Panel<T>> const& by_part);

/// Adds the pass of order_by_token(), or of order_by_part(), to `step`.
void plan_order_rows(StepPlan& step, AttentionShape const& shape, std::int64_t num_columns);

} // namespace orthant::pmm
