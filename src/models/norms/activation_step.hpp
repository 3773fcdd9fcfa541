#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a layer's output Z before the next layer reads it, as a list: what gnn/gcn_activation.hpp runs.

#include "models/core/activation.hpp"
#include "models/core/network.hpp"
#include "models/norms/norm_kind.hpp"

namespace orthant::models {

/// What the activation of a layer does besides being one.
struct ActivationParts {
  Norm norm = Norm::none;
  Activation activation = Activation::relu;
  bool keeps_mask =
      false; // bits of what passed, as the output does not stay (plan/gcn_settings: shares_outputs)

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
