#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The gradients of a step of several batches: K of this group, one after the other, and those of the other
// groups of the data axis:
//
//   dw := sum_g sum_k dw(batch k of group g)
//
// All gradients lie in one array, in the order in which a backward pass completes them. The array is cut in
// buckets of equal size, each summed over the groups by one all_reduce. That of a bucket starts as soon as the
// backward pass of the last batch has completed its gradients, and goes on behind the rest of the pass.
//
// Batches differ along the axes {expert, data}, over which gradients are summed. Those of experts come last in the order: only the
// ranks along data have the same ones, so their buckets are summed over data alone, when the pass ends. If neither data nor the step
// has several of them, they are sums already: they stay where they are, and have no place in the array.
//
// Source: PyTorch Distributed (arXiv 2006.15704), section 3.2.

#include "models/parameters/parameter.hpp"
#include "models/training/objective.hpp"
#include "pmm/cost/step_plan.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/numbers/formats.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace orthant::models {

// Gradients of a mean over n vertices are about 1 / n. From n = 10^7 on that is less than the smallest number of
// fp16, 2^-24, and the 16-bit wire would carry zeros, as 16-bit operands would be zeros. So the gradient of the loss
// is multiplied by a power of two near n / 256, which leaves 2^24 above it and 2^16 below; every gradient that
// follows from it is as much larger, and the step that ends with the optimizer divides by it. Multiplying by a power
// of two is exact. bf16 has the exponents of fp32 and needs none of this.

/// What the gradient of a loss over `num_counted` vertices is multiplied by: 1 unless gradients pass
/// through fp16 (Network::narrowest_format). The same on all ranks.
template<class T>
[[nodiscard]] double gradient_scale(runtime::Wire format, Objective<T> const& loss,
                                    std::int64_t num_counted) {
  constexpr double headroom =
      256; // gradients of hubs and of small activations are larger than those of the loss
  return format == runtime::Wire::fp16 ? std::max(loss.scale_to_one(num_counted) / headroom, 1.0) : 1.0;
}

/// Large enough that an all_reduce runs at the bandwidth of a network rather than its latency, and small enough that
/// the first one starts soon: the default of PyTorch's DistributedDataParallel.
inline constexpr std::int64_t default_bucket_bytes = std::int64_t{25} << 20;

struct GradientSumSettings {
  std::int64_t bucket_bytes = default_bucket_bytes;
  /// Whether sums start during the backward pass. None: if they can go on behind it, which is not so between
  /// host processors of one node.
  std::optional<bool> starts_early;
};

/// Lists the array of a GradientSum, for parameters of which this rank has that many numbers each; and the
/// pass of its add(), and what finish() has done: the all_reduces and the pass. `num_of_experts`: of these numbers.
void plan_gradient_sum_array(pmm::StepPlan& step, std::vector<std::int64_t> const& lengths,
                             std::int64_t num_accumulated, std::int64_t num_of_experts = 0);
void plan_add_gradients(pmm::StepPlan& step, std::vector<std::int64_t> const& lengths, std::int64_t k,
                        std::int64_t num_accumulated, std::int64_t num_of_experts = 0);
void plan_gradient_sum(pmm::StepPlan& step, std::vector<std::int64_t> const& lengths,
                       std::int64_t num_accumulated, std::int64_t bucket_bytes = default_bucket_bytes,
                       std::int64_t num_of_experts = 0);

/// What MPI copies of the sums that are under way at once, on the host, with buckets of the default size. `num_of_experts`: as
/// above; their sums do not start early.
[[nodiscard]] std::int64_t bytes_of_early_sums(pmm::ProcessGrid const& grid, pmm::StepPlan const& step,
                                               std::vector<std::int64_t> const& lengths,
                                               std::int64_t num_of_experts = 0);

template<class T>
class GradientSum {
 public:
  /// For parameters whose gradients stay where they are. `order`: the places of the parameters in the order in
  /// which their gradients are completed, those of experts last (Error); the same on all ranks. `grid` must outlive it.
  GradientSum(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
              std::vector<std::size_t> const& order, std::int64_t num_accumulated,
              GradientSumSettings const& settings = {});

  /// Whether it wants to be told, in the backward pass of batch k, which gradients are complete.
  [[nodiscard]] bool starts_early(std::int64_t k) const { return starts_early_ && k + 1 == num_accumulated_; }
  /// Takes the first `num_complete` gradients of batch k in that order, and starts the sums of the buckets that are
  /// full. If starts_early(k). Collective over the axes of batches: all of their ranks call with the same numbers. Enqueues
  /// on exec.
  void add_early(runtime::DefaultExec const& exec, std::int64_t k, std::size_t num_complete);
  /// Takes the gradients of batch k of K that were not taken early, k in order. Enqueues on exec.
  void add(runtime::DefaultExec const& exec, std::int64_t k);
  /// gradients := the sum, after the last batch. Collective over the axes of batches: one all_reduce for each bucket whose
  /// sum has not started; waits for the others. Nothing, if it has one group.
  void finish(runtime::DefaultExec const& exec);

 private:
  /// Whether a step has more batches than one.
  [[nodiscard]] bool has_several() const { return sum_.extent(0) > 0; }
  [[nodiscard]] bool has_groups() const { return grid_.size(pmm::batch_axes(grid_.shape())) > 1; }
  /// Of the gradients [begin, end) of the array.
  [[nodiscard]] std::size_t num_buckets(std::size_t begin, std::size_t end) const {
    return (end - begin + bucket_length_ - 1) / bucket_length_;
  }
  [[nodiscard]] runtime::Vector<T> bucket(std::size_t i, std::size_t begin, std::size_t end) const;
  void take(runtime::DefaultExec const& exec, std::int64_t k, std::size_t num_complete);

  pmm::ProcessGrid const& grid_;
  std::int64_t num_accumulated_;
  std::size_t bucket_length_;
  bool starts_early_;
  std::vector<runtime::Vector<T>> gradients_; // that are summed, in the order of their completion
  std::size_t length_of_all_ = 0;             // numbers of the gradients that are no expert's
  runtime::Vector<T> sum_;                    // of these gradients; empty if a step is one batch
  std::size_t num_taken_ = 0;                 // gradients of this batch,
  std::size_t length_taken_ = 0;              // and their numbers
  std::vector<runtime::Request> started_;     // the sums of the first buckets
};

extern template class GradientSum<float>;
extern template class GradientSum<double>;

} // namespace orthant::models
