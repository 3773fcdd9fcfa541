#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The gradients of a step of several batches: K of this group, one after the other, and those of the other
// groups of the data axis. All gradients lie in one buffer, so that a step makes one all_reduce:
//
//   dw := sum_g sum_k dw(batch k of group g)

#include "models/core/parameter.hpp"
#include "pmm/cost/step_plan.hpp"

#include <vector>

namespace orthant::models {

/// Lists the array of a GradientSum, for parameters of which this rank has that many numbers each; and the
/// pass of its add(), and what its finish() does.
void plan_gradient_sum_array(pmm::StepPlan& step, std::vector<std::int64_t> const& lengths,
                             std::int64_t num_accumulated);
void plan_add_gradients(pmm::StepPlan& step, std::vector<std::int64_t> const& lengths, std::int64_t k,
                        std::int64_t num_accumulated);
void plan_gradient_sum(pmm::StepPlan& step, std::vector<std::int64_t> const& lengths,
                       std::int64_t num_accumulated);

template<class T>
class GradientSum {
 public:
  /// For parameters whose gradients stay where they are. `grid` must outlive it.
  GradientSum(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
              std::int64_t num_accumulated);

  /// Takes the gradients of batch k of K, k in order. Enqueues on exec.
  void add(runtime::DefaultExec const& exec, std::int64_t k);
  /// gradients := the sum, after the last batch. Collective over the data axis: one all_reduce, or nothing
  /// if it has one group.
  void finish(runtime::DefaultExec const& exec);

 private:
  /// Whether a step has more batches than one.
  [[nodiscard]] bool has_several() const { return sum_.extent(0) > 0; }

  pmm::ProcessGrid const& grid_;
  std::vector<runtime::Vector<T>> gradients_;
  runtime::Vector<T> sum_; // of all gradients; empty if a step is one batch
};

extern template class GradientSum<float>;
extern template class GradientSum<double>;

} // namespace orthant::models
