#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A bias: one number per column, split as the columns are and replicated over the two other axes.
//
//   Z[r,c] := Z[r,c] + 1 b[c]^T          db[c] := sum_r dZ[r,c]^T 1
//
// Z and dZ may hold 16-bit numbers: biases, their gradients and all sums are fp32 then.
//
// ELU, element by element, and its backward pass:
//
//   y = z where z > 0, else exp(z) - 1            dz = dy where z > 0, else dy exp(z)
//
// Source: Clevert, Unterthiner & Hochreiter (arXiv 1511.07289), with alpha = 1.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstdint>

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

/// y := ELU(z). y may be z. All arrays of a call have the same size (Error). Both functions enqueue on exec, do not fence,
/// and count their pass. T: float or double.
template<class T>
void elu(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
         runtime::Matrix<T> const& y);

/// dz from dy and the z of the forward pass. dz may be dy or z.
template<class T>
void elu_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
                  runtime::Matrix<T> const& dy, runtime::Matrix<T> const& dz);

/// List the passes, over that many numbers of this rank.
void plan_elu(StepPlan& step, std::int64_t count);
void plan_elu_backward(StepPlan& step, std::int64_t count);

} // namespace orthant::pmm
