// SPDX-License-Identifier: Apache-2.0
#include "models/norms/activation_step.hpp"

#include "models/core/rms_norm.hpp"
#include "models/norms/centered_norm.hpp"
#include "models/norms/relu_mask.hpp"
#include "pmm/rows/bias.hpp"

namespace orthant::models {

void plan_activation(pmm::StepPlan& step, ActivationStep const& a) {
  if (a.parts.keeps_mask) return plan_relu_with_mask(step, a.z, a.has_bias, a.draws_mask, a.format);
  if (a.parts.norm == Norm::rms) return plan_rms_norm(step, a.z, a.draws_mask, a.is_residual, a.format);
  if (is_centered(a.parts.norm)) plan_centered_norm(step, a.parts.norm, a.z, a.pass);
  if (a.parts.activation == Activation::relu) {
    plan_bias_relu_dropout(step, a.z, a.has_bias && a.parts.is_fused(), a.draws_mask, a.format);
  } else {
    plan_activate(step, a.parts.activation, a.z);
    if (a.draws_mask) plan_apply_dropout(step, a.z);
  }
  if (!a.is_residual) return;
  auto const bytes = step.wire_bytes(step.block(a.z).num_stored, a.format);
  step.add_pass({"add", 2 * bytes, bytes});
}

void plan_activation_backward(pmm::StepPlan& step, ActivationStep const& a) {
  if (a.parts.keeps_mask) return plan_relu_backward_by_mask(step, a.z, a.has_bias, a.format);
  if (a.parts.norm == Norm::rms) {
    plan_rms_norm_backward(step, a.z, a.format);
    if (!a.has_partial_gradients) pmm::plan_reduce_sums(step, a.z);
    return;
  }
  if (a.copies_gradient) {
    auto const bytes = step.wire_bytes(step.block(a.z).num_padded, a.format);
    step.add_pass({"copy", bytes, bytes});
  }
  auto const is_relu = a.parts.activation == Activation::relu;
  auto const has_norm = is_centered(a.parts.norm);
  // Else what passed is to be seen in the result.
  auto const needs_input = !is_relu || (has_norm && a.is_residual);
  if (needs_input && a.draws_mask) plan_apply_dropout(step, a.z);
  if (needs_input && has_norm) plan_restore_centered_norm(step, a.parts.norm, a.z);
  if (is_relu)
    plan_relu_dropout_backward(step, a.z, a.has_bias && !has_norm, a.format);
  else
    plan_activate_backward(step, a.parts.activation, a.z);
  if (has_norm) plan_centered_norm_backward(step, a.parts.norm, a.z, a.has_partial_gradients);
}

} // namespace orthant::models
