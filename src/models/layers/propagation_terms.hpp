#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The teleport of APPNP (arXiv 1810.05997, equation 4), which GCNII calls the initial residual (arXiv 2007.02133, equation 3),
// element by element. alpha is its probability, H0 where it starts, H = A^ F:
//
//   P = (1 - alpha) H + alpha H0          dH = (1 - alpha) dP          dH0 = sum over all P of alpha dP

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"

namespace orthant::models {

/// sum := (1 - alpha) sum + alpha start, of equal placements (Error). Both functions enqueue on exec, do not fence, and count
/// their pass.
template<class T>
void add_teleport(runtime::DefaultExec const& exec, double alpha, pmm::DistMatrix<T> const& start,
                  pmm::DistMatrix<T> const& sum);

/// Whether there is a gradient of the start already.
enum class StartGradient : std::uint8_t { first, further };

/// start_gradient := [start_gradient +] alpha gradient and gradient := (1 - alpha) gradient, of equal placements (Error).
template<class T>
void split_gradient(runtime::DefaultExec const& exec, double alpha, StartGradient which,
                    pmm::DistMatrix<T> const& gradient, pmm::DistMatrix<T> const& start_gradient);

/// List either pass.
void plan_add_teleport(pmm::StepPlan& step, pmm::Placement const& sum);
void plan_split_gradient(pmm::StepPlan& step, StartGradient which, pmm::Placement const& gradient);

// The weight of a layer with an identity map (GCNII, arXiv 2007.02133, equation 5): products read W~ in place of W,
//
//   W~ = (1 - beta) I + beta W          dW = beta dW~
//
// so the identity needs no product and no message of its own. Each rank makes what it stores of W~, by global row and column.

/// map := (1 - beta) I + beta weight, of equal placements (Error). Enqueues on exec; does not fence; counts its pass.
template<class T>
void map_identity(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& weight, double beta,
                  pmm::DistMatrix<T> const& map);
/// gradient := beta gradient, in place: from that of the map to that of the weight. The same holds of addends.
template<class T>
void map_identity_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient, double beta);

/// List either pass.
void plan_map_identity(pmm::StepPlan& step, pmm::Placement const& weight);
void plan_map_identity_backward(pmm::StepPlan& step, pmm::Placement const& weight);

} // namespace orthant::models
