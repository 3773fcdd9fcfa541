#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// All that a rank does in a pass of a transformer, and the arrays that it holds, listed from the plan alone
// (docs/design.md 2.5).

#include "models/lm/transformer_plan.hpp"
#include "pmm/product/pmm.hpp"

namespace orthant::models {

/// The products of the head with its table E[x,y]. Forward it is the adjoint of a product:
///
///   logits[z,x] := sum_y X[z,y] E[x,y]^T      dX[z,y] := sum_x dlogits[z,x] E[x,y]      dE[x,y] := dlogits[z,x]^T X[z,y]
struct HeadProducts {
  pmm::ProductPlan product, input_back, weight_back;
};
[[nodiscard]] HeadProducts head_products(TransformerPlan const& plan);

/// Lists a forward pass; a backward pass; and the arrays of a Transformer.
void plan_transformer_forward(pmm::StepPlan& step, TransformerPlan const& plan, bool is_training = true);
void plan_transformer_backward(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_transformer_arrays(pmm::StepPlan& step, TransformerPlan const& plan);

} // namespace orthant::models
