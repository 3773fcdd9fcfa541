#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Low-rank adapters (LoRA, Hu et al., arXiv 2106.09685). The base W0 of an adapted weight is frozen, and two factors are trained:
//
//   W  := W0 + s A B        before each pass, s = alpha / rank
//   dA := s dW B^T          after the backward pass, with the gradient dW of the whole weight
//   dB := s A^T dW
//
// W is an ordinary weight of the products. The factors are split like the weight: W[a,b] has A[a,-] and B[-,b], replicated over the
// other axes, so computing W sends nothing. dA is summed over all axes but a, and dB over all but b. All gradients that are split over y
// are stored in one array, those split over x in another; one all_reduce sums each array.
//
// A weight of queries, keys and values is a fused matrix, as is one of gates and values. Each target among its columns has an adapter
// of its own. The factors of n adapters are side by side: A [in x n rank], B [n rank x out]. Rows of B are zero in the columns of
// other targets.

#include "models/lm/adapters/adapter_plan.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <cstdint>

namespace orthant::models {

/// List the passes of an Adapter with this weight. `factors` must be those of place_factors().
void plan_merge_adapter(pmm::StepPlan& step, pmm::Placement const& weight, FactorPlacements const& factors);
void plan_adapter_gradient(pmm::StepPlan& step, pmm::Placement const& weight,
                           FactorPlacements const& factors);

/// An adapted weight on this rank. The matrices share memory with the parameters.
template<class T>
struct Adapter {
  pmm::DistMatrix<T> base, weight, weight_gradient;
  pmm::DistMatrix<T> left, left_gradient;   // A
  pmm::DistMatrix<T> right, right_gradient; // B
  runtime::Vector<std::int32_t> slots;      // AdaptedColumns::slots
  std::int64_t rank = 0;
  double scale = 1;

  /// weight := base + scale left right. Enqueues on exec.
  void merge(runtime::DefaultExec const& exec) const;
  /// This rank's addends of left_gradient and right_gradient, from weight_gradient. Enqueues on exec.
  void project(runtime::DefaultExec const& exec) const;
};

extern template struct Adapter<float>;
extern template struct Adapter<double>;

} // namespace orthant::models
