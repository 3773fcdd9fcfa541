#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a layer's output Z before the next layer reads it, as a list: what gnn/layers/network_activation.hpp runs.

#include "models/layers/activation.hpp"
#include "models/layers/centered_norm.hpp"
#include "models/parameters/network.hpp"

namespace orthant::models {

// ReLU and dropout (layers/activation.hpp) with a bit per element that tells what passed. The backward pass reads the bits in
// place of the output, so the output's memory may be lent to its gradient, or to outputs of later layers. On host processors.

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

/// What the activation of a layer does besides being one.
struct ActivationParts {
  Norm norm = Norm::none;
  Activation activation = Activation::relu;
  bool keeps_mask =
      false; // bits of what passed, as the output does not stay (gnn/plan/network_settings: shares_outputs)

  /// Whether it works in place, adds the bias and sums its gradient.
  [[nodiscard]] bool is_fused() const { return norm == Norm::none && activation == Activation::relu; }
};

struct ActivationStep {
  ActivationParts parts;
  pmm::Placement z;
  Pass pass = Pass::training;
  bool has_bias = false; // which a fused activation adds
  bool draws_mask = false;
  bool is_residual = false;
  bool copies_gradient = false;       // of a residual within the rank
  bool has_partial_gradients = false; // of parameters: addends, which are summed elsewhere
  runtime::Wire format = runtime::Wire::native;
};

/// List forward and backward pass, without what a residual brings.
void plan_activation(pmm::StepPlan& step, ActivationStep const& a);
void plan_activation_backward(pmm::StepPlan& step, ActivationStep const& a);

} // namespace orthant::models
