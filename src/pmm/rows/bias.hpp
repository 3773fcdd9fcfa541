#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Bias and ELU, with their backward passes. A bias has one number per column; it is partitioned as the columns of Z are,
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

#include <cstdint>

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

// ELU, elementwise, and its backward pass. Source: Clevert, Unterthiner & Hochreiter (arXiv 1511.07289), with alpha = 1.
//
//   y = z if z > 0, else exp(z) - 1            dz = dy if z > 0, else dy exp(z)

/// y := ELU(z). y may be z. All arrays of a call must have the same size; otherwise throws Error. elu() and
/// elu_backward() enqueue on exec, do not fence, and add one pass to `passes`. T is float or double.
template<class T>
void elu(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
         runtime::Matrix<T> const& y);

/// Computes dz from dy and the z of the forward pass. dz may be dy or z.
template<class T>
void elu_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
                  runtime::Matrix<T> const& dy, runtime::Matrix<T> const& dz);

/// Add the pass over `count` elements of this rank to `step`.
void plan_elu(StepPlan& step, std::int64_t count);
void plan_elu_backward(StepPlan& step, std::int64_t count);

} // namespace orthant::pmm
