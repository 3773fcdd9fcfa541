#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The single numbers of a training step: loss, gradients' norms, the factor of clipping, the learning rate.
// Kernels write them and kernels read them; the host gets them all in one copy at the end of the step.

#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/number.hpp"
#include "runtime/device/kokkos_compat_device.hpp"

#include <span>

namespace orthant::models {

/// Lists the array of StepNumbers.
void plan_step_numbers(pmm::StepPlan& step, std::int64_t num_norms);

class StepNumbers {
 public:
  explicit StepNumbers(std::size_t num_norms);

  /// [1] the loss of one pass.
  [[nodiscard]] runtime::Vector<double> loss() const { return part(0, 1); }
  /// [2] the same, and the number of rows that it is over.
  [[nodiscard]] runtime::Vector<double> loss_and_count() const { return part(0, 2); }
  /// [2] sums over the passes of a step if it has several: of losses, and of the rows that they are over.
  [[nodiscard]] runtime::Vector<double> sums() const { return part(2, 2); }
  /// What the gradients are multiplied by.
  [[nodiscard]] runtime::Number<double> scale() const { return runtime::number_at(numbers_, 4); }
  /// What the optimizer used in this step.
  [[nodiscard]] runtime::Number<double> learning_rate() const { return runtime::number_at(numbers_, 5); }
  /// [num_norms] squared norms of the gradients, and then norms.
  [[nodiscard]] runtime::Vector<double> norms() const { return part(first_norm, num_norms()); }
  [[nodiscard]] std::size_t num_norms() const { return numbers_.extent(0) - first_norm; }

  /// sums() := (k = 0, the first of a step) or += {loss * weight, count}, of loss_and_count(). Enqueues on
  /// exec.
  void add_to_sums(runtime::DefaultExec const& exec, std::int64_t k, double weight) const;

  /// norms() := factor times the roots of norms(); scale() := factor. The factor is 1 / gradient_scale; if
  /// nominal_count is positive, it is multiplied by nominal_count over the count of sums(), or by 0 if that
  /// count is 0. If clip_norm is positive and the norm of all gradients together is larger, scale() is also
  /// multiplied by clip_norm / (norm + 1e-6), as PyTorch's clip_grad_norm_ does. Enqueues on exec.
  void finish_norms(runtime::DefaultExec const& exec, double nominal_count, double gradient_scale,
                    double clip_norm) const;

  /// All numbers on the host.
  struct OnHost {
    double loss = 0;
    double sum = 0;
    double count = 0;
    double learning_rate = 0;
    std::span<double const> norms; // until the next read()
  };
  /// Waits for all that was enqueued on exec. One copy, one fence.
  [[nodiscard]] OnHost read(runtime::DefaultExec const& exec) const;

 private:
  static constexpr std::size_t first_norm = 6;
  friend void plan_step_numbers(pmm::StepPlan& step, std::int64_t num_norms);
  [[nodiscard]] runtime::Vector<double> part(std::size_t begin, std::size_t count) const {
    return runtime::Vector<double>(numbers_.data() + begin, count);
  }

  runtime::Vector<double> numbers_;
  Kokkos::View<double*, runtime::compat::PinnedSpace> on_host_; // unused if the host reaches numbers_
};

} // namespace orthant::models
