#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The weight of a layer with an identity map (GCNII, arXiv 2007.02133, equation 5): products read W~ in place of W,
//
//   W~ = (1 - beta) I + beta W          dW = beta dW~
//
// so the identity needs no product and no message of its own. Each rank makes what it stores of W~, by global row and column.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"

namespace orthant::models {

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
