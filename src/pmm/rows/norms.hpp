#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Squared norms of distributed matrices and vectors, in double, with replicas counted once; used for gradient norms and
// clipping. Each rank computes its share without communication; one reduction over the group then sums the shares of all
// parameters:
//
//   Vector<double> sums("sums", 2);
//   local_squared_norm(exec, dw, sums, 0);
//   local_squared_norm(exec, db, sums, 1);
//   sum_over_group(exec, grid, sums);                      // ||dW||_F^2, ||db||^2
//
// The sums stay in the memory of kernels, so the host does not wait.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <vector>

namespace orthant::pmm {

/// shares(i) := this rank's share of ||matrix||_F^2. It is 0 on all replicas but the first, and if `counts` is false.
/// Enqueues on exec; does not fence.
template<class T>
void local_squared_norm(DefaultExec const& exec, DistMatrix<T> const& matrix, Vector<double> const& shares,
                        std::size_t i, bool counts = true);
template<class T>
void local_squared_norm(DefaultExec const& exec, DistVector<T> const& vector, Vector<double> const& shares,
                        std::size_t i, bool counts = true);

/// The same for an array of numbers of which no other rank of the group has a copy.
template<class T>
void local_squared_norm(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& numbers,
                        Vector<double> const& shares, std::size_t i, bool counts = true);

/// shares(i) := the sum of shares(i) over the X x Y x Z group, over the expert axis if it has several ranks, and over `others`: one
/// all_reduce. Then over the stages of a pipeline: a second one, so that an array of one stage has the bits that it has without a pipeline.
/// Collective over these axes. Enqueues on exec.
void sum_over_group(DefaultExec const& exec, ProcessGrid const& grid, Vector<double> const& shares,
                    AxisSet others = {});
/// Adds the squared norms of arrays, and their sum over the group and `others`, to `step`. `counts` are the numbers of elements of this
/// rank's shares.
void plan_squared_norms(StepPlan& step, std::vector<std::int64_t> const& counts, AxisSet others = {});

} // namespace orthant::pmm
