#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Elementwise parts of jumping knowledge (gnn/layers/jump.hpp) on matrices X_0, X_1, .. with equal placements:
//
//   M_ij = max_k (X_k)_ij     w_ij = the first k with this number     dX_k = dM where w = k, else 0

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>

namespace orthant::models {

/// M := X_0 for number = 0, else the maximum of M and X_k; `winners` accordingly. A NaN is the maximum. Numbers are at most 65,535. Enqueues on exec.
template<class T>
void join_maximum(runtime::DefaultExec const& exec, std::size_t number, pmm::DistMatrix<T> const& x,
                  pmm::DistMatrix<T> const& maximum, runtime::Vector<std::uint16_t> const& winners);
/// dX_k. Enqueues on exec.
template<class T>
void share_of_maximum(runtime::DefaultExec const& exec, std::size_t number,
                      pmm::DistMatrix<T> const& gradient, runtime::Vector<std::uint16_t> const& winners,
                      pmm::DistMatrix<T> const& share);
/// X := factor X. Enqueues on exec.
template<class T>
void scale_numbers(runtime::DefaultExec const& exec, double factor, pmm::DistMatrix<T> const& x);

/// List their passes.
void plan_join_maximum(pmm::StepPlan& step, std::size_t number, pmm::Placement const& maximum);
void plan_share_of_maximum(pmm::StepPlan& step, pmm::Placement const& gradient);
void plan_scale_numbers(pmm::StepPlan& step, pmm::Placement const& x);

} // namespace orthant::models
