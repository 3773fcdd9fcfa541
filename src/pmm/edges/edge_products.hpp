#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Products of one rank whose sparse factor has numbers per edge and head, and the product that makes such numbers:
//
//   v_ijh := <X_ih, Y_jh>          P_ih := sum_j w(v_ijh) Y_jh          D_jh := sum_i w(v_ijh) X_ih
//
// X and P are [rows x heads x width], Y and D [columns x heads x width], v [edges x heads], row-major. Each sum runs in the order of
// the list that it follows. w(v) is v times a factor if v > 0, else 0: coefficients of attention, of which dropout marks those that
// it drops by a minus sign (edge_softmax.hpp). Where an operand is not finite, the result is NaN or infinite. Enqueue on exec; do not
// fence. Cost: 2 edges x heads x width flop each.

#include "pmm/edges/edge_block.hpp"

#include <string>

namespace orthant::pmm {

/// Coefficients of attention.
template<class T>
struct EdgeWeights {
  Vector<T> values; // [edges x heads]; a negative one is dropped
  T factor = 1;     // 1 / (1 - p)
};

template<class T>
void edge_dots(DefaultExec const& exec, EdgeBlock const& block, Heads const& heads, Vector<T> const& x,
               Vector<T> const& y, Vector<T> const& values);
template<class T>
void edge_spmm(DefaultExec const& exec, EdgeBlock const& block, Heads const& heads,
               EdgeWeights<T> const& weights, Vector<T> const& y, Vector<T> const& p);
template<class T>
void edge_spmm_transposed(DefaultExec const& exec, EdgeBlock const& block, Heads const& heads,
                          EdgeWeights<T> const& weights, Vector<T> const& x, Vector<T> const& d);

/// Lists one of them, or another product of as much work on edges. `width`: of all heads; `form`: right_grad is the transposed one.
void plan_edge_product(StepPlan& step, std::string formula, Form form, EdgeCounts const& counts,
                       std::int64_t width, Placement const& matrix = {});

} // namespace orthant::pmm
