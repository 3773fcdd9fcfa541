#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sums over a whole distributed matrix, in double, replicas counted once: gradient norms, clipping. What a
// rank contributes is local; one reduction over the group then serves all parameters at once:
//
//   Vector<double> sums("sums", 2);
//   local_squared_norm(exec, dw, sums, 0);
//   local_squared_norm(exec, db, sums, 1);
//   sum_over_group(exec, grid, sums);                      // ||dW||_F^2, ||db||^2
//
// The sums stay where kernels are: nothing waits.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <vector>

namespace orthant::pmm {

/// shares(i) := this rank's share of ||matrix||_F^2, 0 on all replicas but the first, and if it does not count at all. Enqueues on
/// exec; does not fence.
template<class T>
void local_squared_norm(DefaultExec const& exec, DistMatrix<T> const& matrix, Vector<double> const& shares,
                        std::size_t i, bool counts = true);
template<class T>
void local_squared_norm(DefaultExec const& exec, DistVector<T> const& vector, Vector<double> const& shares,
                        std::size_t i, bool counts = true);

/// shares(i) := sum over the X x Y x Z group, and over the expert axis if it has ranks. Collective: one all_reduce, ordered with
/// exec.
void sum_over_group(DefaultExec const& exec, ProcessGrid const& grid, Vector<double> const& shares);
/// Lists the norms of arrays of which this rank's share has that many numbers each, and their sum over the group.
void plan_squared_norms(StepPlan& step, std::vector<std::int64_t> const& counts);

} // namespace orthant::pmm
