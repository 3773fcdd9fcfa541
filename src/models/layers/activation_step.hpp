#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Lists of the operations that gnn/layers/network_activation.hpp runs, and ReLU with a bit mask.

#include "models/layers/activation.hpp"
#include "models/layers/hidden_norm.hpp"
#include "models/parameters/network.hpp"

namespace orthant::models {

// ReLU with dropout (layers/activation.hpp) that records one bit per element, set if the output is positive. The backward pass reads the
// bits instead of the output, so the output's memory can be reused for its gradient or for outputs of later layers. Host processors only.

/// Number of 32-bit words for the bits of a matrix. Each row begins with a new word.
[[nodiscard]] constexpr std::int64_t num_mask_words(std::int64_t num_rows, std::int64_t num_columns) {
  return num_rows * ((num_columns + 31) / 32);
}

/// The result of bias_relu_dropout(), bit for bit. Also sets bit (i, j) of `passed` to 1 if the result is positive, else to 0. passed
/// [num_mask_words]. Enqueues on exec; does not fence. Throws Error on a device.
template<class T>
void relu_with_mask(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                    runtime::Matrix<T> const& z, runtime::Vector<runtime::SumOf<T>> const& bias,
                    Dropout const& dropout, BlockKeys const& keys,
                    runtime::Vector<std::uint32_t> const& passed);
/// The result of relu_dropout_backward_sum(), bit for bit, with `passed` in place of the activation. If column_sums is empty, the result of
/// relu_dropout_backward(). Enqueues on exec; does not fence.
template<class T>
void relu_backward_by_mask(runtime::DefaultExec const& exec, runtime::PassLedger& passes,
                           runtime::Vector<std::uint32_t> const& passed, double probability,
                           runtime::Matrix<T> const& gradient,
                           runtime::Vector<runtime::SumOf<T>> const& column_sums);

/// List the passes. `format`: format of the matrices' elements.
void plan_relu_with_mask(pmm::StepPlan& step, pmm::Placement const& z, bool has_bias, bool draws_mask,
                         runtime::Wire format);
void plan_relu_backward_by_mask(pmm::StepPlan& step, pmm::Placement const& z, bool sums_columns,
                                runtime::Wire format);
/// Lists the array of the bits.
void plan_relu_mask(pmm::StepPlan& step, pmm::Placement const& z);

/// Number of bits that are set, that is, of positive outputs on this rank. Fences. Not collective.
[[nodiscard]] std::int64_t count_passed(runtime::DefaultExec const& exec,
                                        runtime::Vector<std::uint32_t> const& passed);

/// Parts of a layer's activation.
struct ActivationParts {
  Norm norm = Norm::none;
  Activation activation = Activation::relu;
  bool keeps_mask =
      false; // records bits because the output is overwritten (gnn/plan/network_settings.hpp: shares_outputs)

  /// Whether the activation works in place, adds the bias and sums the bias gradient.
  [[nodiscard]] bool is_fused() const { return norm == Norm::none && activation == Activation::relu; }
  /// Whether norm, activation, dropout and residual are one pass (layers/rms_norm.hpp).
  [[nodiscard]] bool fuses_norm() const { return norm == Norm::rms && activation == Activation::relu; }
  /// Whether the norm has passes of its own (layers/hidden_norm.hpp).
  [[nodiscard]] bool has_own_norm() const { return norm != Norm::none && !fuses_norm(); }
};

struct ActivationStep {
  ActivationParts parts;
  pmm::Placement z;
  Pass pass = Pass::training;
  bool has_bias = false; // added before, or by a fused activation
  bool draws_mask = false;
  bool is_residual = false;
  bool copies_gradient = false;       // because a residual in place still needs it
  bool has_partial_gradients = false; // gradients of parameters are summed elsewhere
  runtime::Wire format = runtime::Wire::native;
};

/// List the operations of the forward pass (including the bias) and of the backward pass. Moves of a residual are not included.
void plan_activation(pmm::StepPlan& step, ActivationStep const& a);
void plan_activation_backward(pmm::StepPlan& step, ActivationStep const& a);

} // namespace orthant::models
