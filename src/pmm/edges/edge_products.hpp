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
#include "pmm/product/workspace.hpp"

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

// Scores of edges, and their adjoints. leaky(z) = z if z > 0, else 0.2 z. For every edge (i, j) and head h:
//
//   static (GAT)        v_ijh := leaky(s_ih + t_jh)
//   dynamic (GATv2)     v_ijh := sum_c a_hc leaky(L_ihc + R_jhc)
//
// s [rows x heads], t [columns x heads]; L [rows x heads x width], R [columns x heads x width], a [heads x width]. With the gradient g of
// the scores and z the argument of leaky:
//
//   static     g_ijh := g_ijh leaky'(z)      ds_ih = sum_j g_ijh      dt_jh = sum_i g_ijh
//   dynamic    dL_ihc = sum_j g_ijh a_hc leaky'(z)      dR_jhc = sum_i g_ijh a_hc leaky'(z)      da_hc = sum_ij g_ijh leaky(z)
//
// Each function counts a pass. Enqueue on exec; do not fence. Sources: Velickovic et al. (arXiv 1710.10903), equation 3; Brody, Alon &
// Yahav (arXiv 2105.14491), equation 7.

template<class T>
void static_scores(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                   std::int64_t num_heads, Vector<T> const& s, Vector<T> const& t, Vector<T> const& values);
/// g in place, ds and dt of this rank's edges.
template<class T>
void static_scores_backward(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                            std::int64_t num_heads, Vector<T> const& s, Vector<T> const& t,
                            Vector<T> const& gradient, Vector<T> const& ds, Vector<T> const& dt);
void plan_static_scores(StepPlan& step, EdgeCounts const& counts, std::int64_t num_heads);
void plan_static_scores_backward(StepPlan& step, EdgeCounts const& counts, std::int64_t num_heads);

/// L, R and a.
template<class T>
struct DynamicOperands {
  Vector<T> of_rows, of_columns, attention;
};
/// Of this rank's edges. of_rows is written, of_columns is added to.
template<class T>
struct DynamicGradients {
  Vector<T> of_rows, of_columns;
  Vector<T>
      attention_of_rows; // [rows x heads x width]: sum_j g_ijh leaky(z), of which da is the sum over the rows
};

template<class T>
void dynamic_scores(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                    Heads const& heads, DynamicOperands<T> const& operands, Vector<T> const& values);
template<class T>
void dynamic_scores_backward(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                             Heads const& heads, DynamicOperands<T> const& operands,
                             Vector<T> const& gradient, DynamicGradients<T> const& gradients);
void plan_dynamic_scores(StepPlan& step, EdgeCounts const& counts, Heads const& heads);
void plan_dynamic_scores_backward(StepPlan& step, EdgeCounts const& counts, Heads const& heads);

} // namespace orthant::pmm
