#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Bias and its gradient. A bias has one number per column; it is partitioned as the columns of Z are,
// and replicated over the two other axes.
//
//   Z[r,c] := Z[r,c] + 1 b[c]^T          db[c] := sum_r dZ[r,c]^T 1
//
// If Z and dZ hold 16-bit numbers, biases, their gradients and all sums are fp32.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"

namespace orthant::pmm {

/// z(i, j) += bias(j). `bias` must lie along z's column axis and have its length; otherwise throws Error. `z` must not be
/// flat-sharded. Not collective. Enqueues on exec; does not fence.
template<class T>
void add_bias(DefaultExec const& exec, DistMatrix<T> const& z, DistVector<runtime::SumOf<T>> const& bias);
/// Adds the pass of add_bias() to `step`. `format` is the number format of z.
void plan_add_bias(StepPlan& step, Placement const& z, Wire format = Wire::native);

/// bias_gradient(j) := the sum of gradient(:, j) over all rows, the same on every rank that holds column j.
/// `bias_gradient` must lie along the gradient's column axis and have its length; otherwise throws Error. Collective over
/// the row axis: one all_reduce of the block's columns. Also collective over the third axis if the gradient is row-sharded.
/// `work` must have the buffers of reserve_column_sums(). Enqueues on exec; does not fence.
template<class T>
void sum_rows(DefaultExec const& exec, DistMatrix<T> const& gradient,
              DistVector<runtime::SumOf<T>> const& bias_gradient, Workspace<runtime::SumOf<T>> const& work);

/// The first of two steps of sum_rows(), which may also be called separately if another kernel already forms the sums of
/// this rank: bias_gradient(j) := the sum of gradient(:, j) over this rank's rows. The order of additions depends only on
/// the shape (on hosts: long_sums.hpp). Not collective.
template<class T>
void sum_columns(DefaultExec const& exec, DistMatrix<T> const& gradient,
                 DistVector<runtime::SumOf<T>> const& bias_gradient,
                 Workspace<runtime::SumOf<T>> const& work);

/// The second step of sum_rows(): its collectives. bias_gradient.local() must have this rank's sums. Collective over the
/// row axis, and over the third axis if the gradient is row-sharded.
template<class T>
void reduce_sums(DefaultExec const& exec, DistMatrix<T> const& gradient,
                 DistVector<runtime::SumOf<T>> const& bias_gradient);

/// Add the pass of sum_columns(), and the collectives of reduce_sums(), to `step`; sum_rows() has both. `format` is the
/// number format of the gradient.
void plan_sum_columns(StepPlan& step, Placement const& gradient, Wire format = Wire::native);
void plan_reduce_sums(StepPlan& step, Placement const& gradient);

} // namespace orthant::pmm
