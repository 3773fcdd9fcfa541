#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Activation functions of kernels/activation_functions.hpp applied to a matrix, elementwise, and their backward passes. If matrices hold
// 16-bit numbers, f is computed in fp32 and the result is rounded once.

#include "pmm/cost/step_plan.hpp"
#include "pmm/kernels/activation_functions.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstdint>

namespace orthant::pmm {

/// y := f(z). y may be z. All arrays of a call must have the same size; otherwise throws Error. Both functions enqueue on exec, do not
/// fence, and add one pass to `passes`.
template<class T>
void activate(runtime::DefaultExec const& exec, runtime::PassLedger& passes, Activation f,
              runtime::Matrix<T> const& z, runtime::Matrix<T> const& y);

/// gradient := gradient f'(z), in place.
template<class T>
void activate_backward(runtime::DefaultExec const& exec, runtime::PassLedger& passes, Activation f,
                       runtime::Matrix<T> const& z, runtime::Matrix<T> const& gradient);

/// Add the pass over `count` elements of this rank to `step`. `format`: format of the elements.
void plan_activate(StepPlan& step, Activation f, std::int64_t count, Wire format = Wire::native);
void plan_activate_backward(StepPlan& step, Activation f, std::int64_t count, Wire format = Wire::native);

} // namespace orthant::pmm
