#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// ReLU and dropout (core/activation.hpp) with a bit per element that tells what passed. The backward pass reads the bits in
// place of the output, so the output's memory may be lent to its gradient, or to outputs of later layers. On host processors.

#include "models/core/activation.hpp"

namespace orthant::models {

/// Words of bits of a matrix; rows begin with a word.
[[nodiscard]] constexpr std::int64_t num_mask_words(std::int64_t num_rows, std::int64_t num_columns) {
  return num_rows * ((num_columns + 31) / 32);
}

/// As bias_relu_dropout(), to the bit; bit (i, j) of `passed` := whether the result is positive. passed [num_mask_words]. Enqueues on exec; does
/// not fence. Throws Error on a device.
template<class T>
void relu_with_mask(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                    runtime::Matrix<T> const& z, runtime::Vector<runtime::SumOf<T>> const& bias,
                    Dropout const& dropout, BlockKeys const& keys,
                    runtime::Vector<std::uint32_t> const& passed);
/// As relu_dropout_backward_sum(), to the bit, with `passed` in place of the activation; without column_sums as
/// relu_dropout_backward().
template<class T>
void relu_backward_by_mask(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                           runtime::Vector<std::uint32_t> const& passed, double probability,
                           runtime::Matrix<T> const& gradient,
                           runtime::Vector<runtime::SumOf<T>> const& column_sums);

/// List them. `format` is that of the matrices' numbers.
void plan_relu_with_mask(pmm::StepPlan& step, pmm::Placement const& z, bool has_bias, bool draws_mask,
                         runtime::Wire format);
void plan_relu_backward_by_mask(pmm::StepPlan& step, pmm::Placement const& z, bool sums_columns,
                                runtime::Wire format);
/// Lists the bits.
void plan_relu_mask(pmm::StepPlan& step, pmm::Placement const& z);

/// How many bits are set on this rank. Fences; not collective.
[[nodiscard]] std::int64_t count_passed(runtime::DefaultExec const& exec,
                                        runtime::Vector<std::uint32_t> const& passed);

} // namespace orthant::models
