#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Elementwise operations of a transformer, with their backward passes: activations of the feed-forward part, and
// dropout with the addition of a residual. Phi and phi are the distribution and the density of the normal distribution, s is the
// logistic function:
//
//   GELU     y = z Phi(z)             dz = dy (Phi(z) + z phi(z))                Phi(z) = (1 + erf(z / sqrt 2)) / 2
//   SwiGLU   y = g s(g) u             dg = dy u s(g) (1 + g (1 - s(g)))          du = dy g s(g)
//
// GELU uses the exact Phi. In single precision on hosts, Phi is computed from one exponential and a polynomial (errors:
// kernels/normal_host_kernel.inc), with the same bits for every instruction set. Otherwise it is computed by functions of the C++
// library. GPT-2 and similar models were trained with an approximation that differs by up to 4.7e-4 (FeedForward::gelu_tanh):
//
//   Phi(z) = (1 + tanh(c (z + 0.044715 z^3))) / 2,  c = sqrt(2 / pi)
//
// Sources: Hendrycks & Gimpel (arXiv 1606.08415), Shazeer (arXiv 2002.05202).

#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>

namespace orthant::pmm {

enum class FeedForward : std::uint8_t { gelu, gelu_tanh, swiglu };

/// Number of inputs per output: SwiGLU has a pair.
[[nodiscard]] constexpr std::int64_t inputs_per_output(FeedForward kind) {
  return kind == FeedForward::swiglu ? 2 : 1;
}

/// y := the activation of z, by one of the functions below.
template<class T>
void activate(runtime::DefaultExec const& exec, runtime::PassLedger& passes, FeedForward kind,
              runtime::Matrix<T> const& z, runtime::Matrix<T> const& y);
template<class T>
void activate_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes, FeedForward kind,
                       runtime::Matrix<T> const& z, runtime::Matrix<T> const& dy,
                       runtime::Matrix<T> const& dz);

/// y := GELU(z). y may be z. All arrays of a call must have the same size; otherwise throws Error. The functions of this header
/// enqueue on exec, do not fence, and add one pass to `passes`. T is float or double.
template<class T>
void gelu(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
          runtime::Matrix<T> const& y);

/// Computes dz from dy and the z of the forward pass. dz may be dy or z.
template<class T>
void gelu_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
                   runtime::Matrix<T> const& dy, runtime::Matrix<T> const& dz);

/// y := g s(g) u. Pairs are interleaved, z_{2j} = g_j and z_{2j+1} = u_j, so that a rank that has columns [2a, 2b) of z has whole
/// pairs. z is [rows x 2 columns], y [rows x columns]; other sizes throw Error. z and y must not overlap.
template<class T>
void swiglu(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
            runtime::Matrix<T> const& y);

/// Computes dz from dy and the z of the forward pass. dz may be z.
template<class T>
void swiglu_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                     runtime::Matrix<T> const& z, runtime::Matrix<T> const& dy, runtime::Matrix<T> const& dz);

/// Add the pass over `num_outputs` elements of y of this rank to `step`.
void plan_activate(StepPlan& step, FeedForward kind, std::int64_t num_outputs);
void plan_activate_backward(StepPlan& step, FeedForward kind, std::int64_t num_outputs);
void plan_gelu(StepPlan& step, std::int64_t num_outputs);
void plan_gelu_backward(StepPlan& step, std::int64_t num_outputs);
void plan_swiglu(StepPlan& step, std::int64_t num_outputs);
void plan_swiglu_backward(StepPlan& step, std::int64_t num_outputs);

// Sum of a residual stream and the output of a block, with dropout:
//
//   to := base + M from                   backward:  d_from := M d_to,   d_base := d_to
//
// M is 0 with probability p, else 1 / (1 - p). Draws are keyed by the number of the token and the global column, so M is the same
// on every grid. Without dropout M is 1.

/// Dropout of rows of tokens.
struct RowDropout {
  double probability = 0; // in [0, 1); 0 means no mask
  runtime::RandomStream stream{0, runtime::Purpose::dropout};
  runtime::Vector<std::int64_t> token_ids; // [rows] global numbers of the tokens
  std::int64_t first_column = 0;           // global index of the first column of this rank
};

/// to := base + M from, elementwise; `to` may be `base` or `from`. token_ids may be empty if the probability is 0. Throws Error if
/// sizes or the probability do not fit.
template<class T>
void add_dropped(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                 runtime::Matrix<T> const& base, runtime::Matrix<T> const& from, RowDropout const& dropout,
                 runtime::Matrix<T> const& to);

/// to := M from; `to` may be `from`. Throws Error if sizes or the probability do not fit.
template<class T>
void drop_rows(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& from,
               RowDropout const& dropout, runtime::Matrix<T> const& to);

/// Add the pass of add_dropped(), or of drop_rows(), to `step`.
void plan_add_dropped(StepPlan& step, std::int64_t num_rows, std::int64_t num_columns, bool draws_mask);
void plan_drop_rows(StepPlan& step, std::int64_t num_rows, std::int64_t num_columns, bool draws_mask);

} // namespace orthant::pmm
