#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// ELU, element by element, and its backward pass:
//
//   y = z where z > 0, else exp(z) - 1            dz = dy where z > 0, else dy exp(z)
//
// Source: Clevert, Unterthiner & Hochreiter (arXiv 1511.07289), with alpha = 1.

#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/views.hpp"

#include <cstdint>

namespace orthant::pmm {

/// y := ELU(z). y may be z. All arrays of a call have the same size (Error). Both functions enqueue on exec, do not fence,
/// and count their pass. T: float or double.
template<class T>
void elu(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
         runtime::Matrix<T> const& y);

/// dz from dy and the z of the forward pass. dz may be dy or z.
template<class T>
void elu_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes, runtime::Matrix<T> const& z,
                  runtime::Matrix<T> const& dy, runtime::Matrix<T> const& dz);

/// List the passes, over that many numbers of this rank.
void plan_elu(StepPlan& step, std::int64_t count);
void plan_elu_backward(StepPlan& step, std::int64_t count);

} // namespace orthant::pmm
