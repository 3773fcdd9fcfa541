#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a perceptron with one hidden layer of K numbers needs of pairs of rows beside dense products. With X [rows x width] and Y
// [columns x width], for the pairs e = (i, j) of a range of a list:
//
//   G_e := X_i * Y_j, number by number                     multiply_pairs
//   z_e := <relu(Z_e + b), w> + b'                         score_hidden            Z_e := W^T G_e, [pairs of the range x K]
//   s_e := derivative of the loss by z_e                   differentiate_hidden    binary cross-entropy, as in pair_kernels.hpp
//   R_e := relu(Z_e + b)
//   dZ_e := s_e w where Z_e + b > 0, else 0
//   dX_i += sum_e dG_e * Y_j                               add_pair_gradients      dG_e := W dZ_e
//   dY_j += sum_e dG_e * X_i                               add_pair_gradients_transposed
//
// Arrays of pairs hold the range alone. Each sum runs in the order of its list, so it has the same bits in every run. Functions
// enqueue on exec, do not fence and count a pass.

#include "pmm/edges/edge_block.hpp"
#include "runtime/range.hpp"

namespace orthant::pmm {

/// Numbers after Z, whole on every rank. An empty bias is 0.
template<class T>
struct HiddenLayer {
  Vector<T> bias;          // b  [K]
  Vector<T> output_weight; // w  [K]
  Vector<T> output_bias;   // b' [1]
  [[nodiscard]] std::int64_t width() const { return static_cast<std::int64_t>(output_weight.extent(0)); }
};

template<class T>
void multiply_pairs(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                    runtime::Range const& pairs, std::int64_t width, Vector<T> const& x, Vector<T> const& y,
                    Vector<T> const& products);
void plan_multiply_pairs(StepPlan& step, std::int64_t num_pairs, std::int64_t width);

template<class T>
void score_hidden(DefaultExec const& exec, runtime::PassLedger& passes, HiddenLayer<T> const& layer,
                  Vector<T> const& z, Vector<T> const& scores);
void plan_score_hidden(StepPlan& step, std::int64_t num_pairs, std::int64_t hidden);

/// z becomes R. `weight`: what a pair's derivative is multiplied by. `is_positive`: the label of all pairs.
template<class T>
void differentiate_hidden(DefaultExec const& exec, runtime::PassLedger& passes, HiddenLayer<T> const& layer,
                          Vector<T> const& scores, bool is_positive, double weight, Vector<T> const& z,
                          Vector<T> const& dz, Vector<T> const& slopes);
void plan_differentiate_hidden(StepPlan& step, std::int64_t num_pairs, std::int64_t hidden);

template<class T>
void add_pair_gradients(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                        runtime::Range const& pairs, std::int64_t width, Vector<T> const& dproducts,
                        Vector<T> const& y, Vector<T> const& dx);
template<class T>
void add_pair_gradients_transposed(DefaultExec const& exec, runtime::PassLedger& passes,
                                   EdgeBlock const& block, runtime::Range const& pairs, std::int64_t width,
                                   Vector<T> const& dproducts, Vector<T> const& x, Vector<T> const& dy);
/// Lists one of them, for `num_sums` rows or columns of the block.
void plan_add_pair_gradients(StepPlan& step, std::int64_t num_pairs, std::int64_t num_sums,
                             std::int64_t width, bool is_transposed);

} // namespace orthant::pmm
