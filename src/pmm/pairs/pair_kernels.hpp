#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a loss over pairs of rows needs of one rank, with X [rows x width] and Y [columns x width], row-major:
//
//   z_e := <X_i, Y_j>  of pair e = (i, j)          edge_dots (edges/edge_products.hpp) with one head
//   P_i := sum_e v_e Y_j over the pairs of i       pair_sums
//   D_j := sum_e v_e X_i over the pairs of j       pair_sums_transposed
//
// Unlike coefficients of attention, v may be negative. Each sum runs in the order of its list, so it has the same bits in every run.
// Cost: 2 pairs x width flop each. And binary cross-entropy of scores, pairs of label 1 first:
//
//   loss := scale (sum_{e < n1} softplus(-z_e) + sum_{e >= n1} softplus(z_e))       dz_e := factor scale (sigmoid(z_e) - y_e)
//
// with softplus(z) = max(z, 0) + log(1 + exp(-|z|)). Functions enqueue on exec and do not fence.

#include "pmm/edges/edge_products.hpp"
#include "pmm/product/product_options.hpp"
#include "runtime/arrays/number.hpp"

namespace orthant::pmm {

template<class T>
void pair_sums(DefaultExec const& exec, EdgeBlock const& block, std::int64_t width, Vector<T> const& values,
               Vector<T> const& y, Vector<T> const& p, Update update);
template<class T>
void pair_sums_transposed(DefaultExec const& exec, EdgeBlock const& block, std::int64_t width,
                          Vector<T> const& values, Vector<T> const& x, Vector<T> const& d, Update update);

/// scores := dz in place; loss := this rank's part, in double. `num_positive` scores are of label 1, the others of label 0.
/// `factor` multiplies the gradient only. Counts a pass.
template<class T>
void pair_loss_and_gradient(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& scores,
                            std::int64_t num_positive, double scale, double factor,
                            runtime::Number<double> const& loss);
void plan_pair_loss(StepPlan& step, std::int64_t num_pairs);

/// to += from, of equal lengths. Counts a pass.
template<class T>
void add_numbers(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& from,
                 Vector<T> const& to);
void plan_add_numbers(StepPlan& step, std::int64_t count);

} // namespace orthant::pmm
