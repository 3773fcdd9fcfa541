#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Products of one rank with one value per edge and head: edge_dots computes the values, edge_spmm and edge_spmm_transposed
// multiply by them. Also the scores of graph attention (below).
//
//   v_ijh := <X_ih, Y_jh>          P_ih := sum_j w(v_ijh) Y_jh          D_jh := sum_i w(v_ijh) X_ih
//
// X and P are [rows x heads x width], Y and D [columns x heads x width], v [edges x heads], row-major. Each sum runs in the order of
// the row's or column's list. w(v) = factor v if v > 0, else 0: v is an attention coefficient, and a minus sign marks a coefficient
// that dropout drops (edge_softmax.hpp). If an operand is not finite, the result is NaN or infinite; on devices, operands with
// weight 0 are ignored. Enqueue on exec; do not fence. Cost: 2 edges x heads x width flop each.

#include "pmm/edges/edge_block.hpp"
#include "pmm/product/workspace.hpp"

#include <string>

namespace orthant::pmm {

/// Attention coefficients, or any numbers if `are_signed`: then w(v) = factor v.
template<class T>
struct EdgeWeights {
  Vector<T> values; // [edges x heads]; coefficients are negative if dropped
  T factor = 1;     // 1 / (1 - p)
  bool are_signed = false;
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

/// Adds one product on edges to `step`. `width` is the width of all heads together; Form::right_grad means the transposed product.
void plan_edge_product(StepPlan& step, std::string formula, Form form, EdgeCounts const& counts,
                       std::int64_t width, Placement const& matrix = {});

// Attention scores of edges, and their adjoints. leaky(z) = z if z > 0, else 0.2 z. For every edge (i, j) and head h:
//
//   static (GAT)        v_ijh := leaky(s_ih + t_jh + q_ijh)
//   dynamic (GATv2)     v_ijh := sum_c a_hc leaky(L_ihc + R_jhc + q_ijhc)
//
// The term q of features of edges is left out without features (EdgeFeatureTerm).
// s [rows x heads], t [columns x heads]; L [rows x heads x width], R [columns x heads x width], a [heads x width]. With the gradient g of
// the scores and z the argument of leaky:
//
//   static     g_ijh := g_ijh leaky'(z)      ds_ih = sum_j g_ijh      dt_jh = sum_i g_ijh
//   dynamic    dL_ihc = sum_j g_ijh a_hc leaky'(z)      dR_jhc = sum_i g_ijh a_hc leaky'(z)      da_hc = sum_ij g_ijh leaky(z)
//
// Each call adds one pass to `passes`. Enqueue on exec; do not fence. Sources: Velickovic et al. (arXiv 1710.10903), equation 3;
// Brody, Alon & Yahav (arXiv 2105.14491), equation 7.

/// q_eh = sum_f E_ef B_fh, or q_ehc = sum_f E_ef B_fhc in dynamic scores.
template<class T>
struct EdgeFeatureTerm {
  Vector<T> features;      // E [edges x count]
  Vector<T> factors;       // B, whose rows begin `stride` apart
  std::int64_t count = 0;  // number of features; 0: there is no term
  std::int64_t stride = 0; // of B
};

template<class T>
void static_scores(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                   std::int64_t num_heads, Vector<T> const& s, Vector<T> const& t, Vector<T> const& values,
                   EdgeFeatureTerm<T> const& features = {});
/// Updates g in place; writes the sums ds and dt over this rank's edges.
template<class T>
void static_scores_backward(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                            std::int64_t num_heads, Vector<T> const& s, Vector<T> const& t,
                            Vector<T> const& gradient, Vector<T> const& ds, Vector<T> const& dt,
                            EdgeFeatureTerm<T> const& features = {});
void plan_static_scores(StepPlan& step, EdgeCounts const& counts, std::int64_t num_heads);
void plan_static_scores_backward(StepPlan& step, EdgeCounts const& counts, std::int64_t num_heads);

/// L (of_rows), R (of_columns) and a (attention).
template<class T>
struct DynamicOperands {
  Vector<T> of_rows, of_columns, attention;
  EdgeFeatureTerm<T> features{};
};
/// Gradients over this rank's edges: dL (of_rows) is overwritten, dR (of_columns) is added to.
template<class T>
struct DynamicGradients {
  Vector<T> of_rows, of_columns;
  Vector<T> attention_of_rows; // [rows x heads x width]: sum_j g_ijh leaky(z), whose sum over the rows is da
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
