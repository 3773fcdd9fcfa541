#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What stands between the two products of a transformer's feed-forward part, element by element, and its backward pass.
// Phi and phi are distribution and density of the normal distribution, s the logistic function:
//
//   GELU     y = z Phi(z)             dz = dy (Phi(z) + z phi(z))                Phi(z) = (1 + erf(z / sqrt 2)) / 2, not tanh's
//   SwiGLU   y = g s(g) u             dg = dy u s(g) (1 + g (1 - s(g)))          du = dy g s(g)
//
// In single precision on host processors Phi is computed from one exponential and a polynomial (token_kernels_host.hpp has the
// errors); the bits are the same for every instruction set. Else by the functions of the C++ library.
//
// Source: Hendrycks & Gimpel (arXiv 1606.08415), Shazeer (arXiv 2002.05202).
//
// The sum of a residual stream and what a block adds to it, with dropout:
//
//   to := base + M from                   backward:  d_from := M d_to,   d_base := d_to
//
// M is 0 with probability p, else 1 / (1 - p), keyed by the number of the token and the global column, so that it is the same
// on every grid; without dropout it is 1.

#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>

namespace orthant::pmm {

/// y := GELU(z), element by element. y may be z. All arrays of a call have the same size (Error). The functions here enqueue
/// on exec, do not fence, and count their pass. T: float or double.
template<class T>
void gelu(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
          runtime::Matrix<T> const& y);

/// dz from dy and the z of the forward pass. dz may be dy or z.
template<class T>
void gelu_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
                   runtime::Matrix<T> const& dy, runtime::Matrix<T> const& dz);

/// y := g s(g) u of pairs that lie side by side, z_{2j} = g_j and z_{2j+1} = u_j, so that any contiguous part of the columns
/// has both numbers of each pair. z [rows x 2 columns], y [rows x columns]. They share no memory.
template<class T>
void swiglu(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
            runtime::Matrix<T> const& y);

/// dz from dy and the z of the forward pass. dz may be z.
template<class T>
void swiglu_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                     runtime::Matrix<T> const& z, runtime::Matrix<T> const& dy, runtime::Matrix<T> const& dz);

/// List the passes, over that many numbers of y of this rank.
void plan_gelu(StepPlan& step, std::int64_t num_outputs);
void plan_gelu_backward(StepPlan& step, std::int64_t num_outputs);
void plan_swiglu(StepPlan& step, std::int64_t num_outputs);
void plan_swiglu_backward(StepPlan& step, std::int64_t num_outputs);

/// Dropout of rows of tokens.
struct RowDropout {
  double probability = 0; // 0: no mask; else below 1
  runtime::RandomStream stream{0, runtime::Purpose::dropout};
  runtime::Vector<std::int64_t> token_ids; // [rows] numbers of the tokens over all ranks
  std::int64_t first_column = 0;           // global number of the first column of this rank
};

/// to := base + M from, element by element; `to` may be base or from. Without dropout also no token_ids. Enqueues on exec;
/// does not fence. Counts the pass. T: float or double.
template<class T>
void add_dropped(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                 runtime::Matrix<T> const& base, runtime::Matrix<T> const& from, RowDropout const& dropout,
                 runtime::Matrix<T> const& to);

/// to := M from; `to` may be from.
template<class T>
void drop_rows(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& from,
               RowDropout const& dropout, runtime::Matrix<T> const& to);

/// List the passes.
void plan_add_dropped(StepPlan& step, std::int64_t num_rows, std::int64_t num_columns, bool draws_mask);
void plan_drop_rows(StepPlan& step, std::int64_t num_rows, std::int64_t num_columns, bool draws_mask);

} // namespace orthant::pmm
