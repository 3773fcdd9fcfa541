#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Terms of models that propagate: teleport and identity map. The teleport of APPNP (arXiv 1810.05997, equation 4) is called initial
// residual in GCNII (arXiv 2007.02133, equation 3). It is elementwise. alpha is the teleport probability, H0 its start, H = A^ F:
//
//   P = (1 - alpha) H + alpha H0          dH = (1 - alpha) dP          dH0 = sum over all P of alpha dP

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"

namespace orthant::models {

/// sum := (1 - alpha) sum + alpha start. Both must have the same placement; otherwise throws Error. Enqueues on exec, does not
/// fence, and counts its pass.
template<class T>
void add_teleport(runtime::DefaultExec const& exec, double alpha, pmm::DistMatrix<T> const& start,
                  pmm::DistMatrix<T> const& sum);

/// first: overwrite the gradient of the start; further: add to it.
enum class StartGradient : std::uint8_t { first, further };

/// Adjoint of add_teleport(), with G the gradient. Placements must be equal; otherwise throws Error. Enqueues on exec, does not
/// fence, and counts its pass.
///
///   start_gradient := [start_gradient +] alpha G          G := (1 - alpha) G
template<class T>
void split_gradient(runtime::DefaultExec const& exec, double alpha, StartGradient which,
                    pmm::DistMatrix<T> const& gradient, pmm::DistMatrix<T> const& start_gradient);

/// List the passes.
void plan_add_teleport(pmm::StepPlan& step, pmm::Placement const& sum);
void plan_split_gradient(pmm::StepPlan& step, StartGradient which, pmm::Placement const& gradient);

// Identity map of a layer's weight (GCNII, arXiv 2007.02133, equation 5): products read W~ instead of W,
//
//   W~ = (1 - beta) I + beta W          dW = beta dW~
//
// so the identity needs neither a product nor a message. Each rank computes its piece of W~, by global row and column.

/// map := (1 - beta) I + beta weight. Both must have the same placement; otherwise throws Error. Enqueues on exec; does
/// not fence; counts its pass.
template<class T>
void map_identity(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& weight, double beta,
                  pmm::DistMatrix<T> const& map);
/// gradient := beta gradient, in place: converts the gradient by the map to the gradient by the weight. Partial gradients are allowed.
template<class T>
void map_identity_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient, double beta);

/// List the passes.
void plan_map_identity(pmm::StepPlan& step, pmm::Placement const& weight);
void plan_map_identity_backward(pmm::StepPlan& step, pmm::Placement const& weight);

} // namespace orthant::models
