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

#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/views.hpp"

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

} // namespace orthant::pmm
