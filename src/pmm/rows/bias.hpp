#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A bias: one number per column, split as the columns are and replicated over the two other axes.
//
//   Z[r,c] := Z[r,c] + 1 b[c]^T          db[c] := sum_r dZ[r,c]^T 1
//
// Z and dZ may hold 16-bit numbers: biases, their gradients and all sums are fp32 then.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"
#include "runtime/numbers/formats.hpp"

namespace orthant::pmm {

/// z(i, j) += bias(j). `bias` lies along z's column axis and has its length (Error); no flat shards. Local.
/// Enqueues on exec; does not fence.
template<class T>
void add_bias(DefaultExec const& exec, DistMatrix<T> const& z, DistVector<runtime::SumOf<T>> const& bias);
/// Lists its pass. `format`: of the numbers of z.
void plan_add_bias(StepPlan& step, Placement const& z, Wire format = Wire::native);

/// bias_gradient(j) := the sum of gradient(:, j) over all rows, the same on every rank that holds column j.
/// Collective over the row axis: one all_reduce of the block's columns; and over the third axis where
/// row-sharded. Same conditions. `work` has room for its partial sums (reserve_column_sums).
template<class T>
void sum_rows(DefaultExec const& exec, DistMatrix<T> const& gradient,
              DistVector<runtime::SumOf<T>> const& bias_gradient, Workspace<runtime::SumOf<T>> const& work);

/// sum_rows in two steps, for a kernel that has the columns summed in passing: bias_gradient(j) := the sum of
/// gradient(:, j) over this rank's rows, in an order that depends on the shape alone: long_sums.hpp on host
/// processors (local), ..
template<class T>
void sum_columns(DefaultExec const& exec, DistMatrix<T> const& gradient,
                 DistVector<runtime::SumOf<T>> const& bias_gradient,
                 Workspace<runtime::SumOf<T>> const& work);

/// .. and the collectives: bias_gradient comes with this rank's sums in local(). Same conditions as sum_rows.
template<class T>
void reduce_sums(DefaultExec const& exec, DistMatrix<T> const& gradient,
                 DistVector<runtime::SumOf<T>> const& bias_gradient);

/// Lists the pass of sum_columns, and the collectives of reduce_sums; sum_rows has both. `format`: of the gradient.
void plan_sum_columns(StepPlan& step, Placement const& gradient, Wire format = Wire::native);
void plan_reduce_sums(StepPlan& step, Placement const& gradient);

} // namespace orthant::pmm
