// SPDX-License-Identifier: Apache-2.0
#include "models/training/gradient_sum.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace orthant::models {
namespace {

using runtime::sum_of;

/// to := from, or to += from.
template<class T>
struct Add {
  runtime::Vector<T> from;
  T* to;
  bool is_first;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const number = from(static_cast<std::size_t>(i));
    to[i] = is_first ? number : to[i] + number;
  }
};

bool has_several_batches(pmm::GridShape const& shape, std::int64_t num_accumulated) {
  return num_accumulated > 1 || shape.size(pmm::batch_axes(shape)) > 1;
}

/// Whether gradients of experts must be summed over batches or ranks.
bool sums_experts(pmm::GridShape const& shape, std::int64_t num_accumulated) {
  return num_accumulated > 1 || shape.size(summed_axes(shape, true)) > 1;
}

/// Length of the array; 0 without an array.
std::int64_t length_of_array(pmm::GridShape const& shape, std::vector<std::int64_t> const& lengths,
                             std::int64_t num_accumulated, std::int64_t num_of_experts) {
  if (!has_several_batches(shape, num_accumulated)) return 0;
  return sum_of(lengths) - (sums_experts(shape, num_accumulated) ? 0 : num_of_experts);
}

/// Whether messages lose something.
bool keeps_residuals(pmm::GridShape const& shape, runtime::Wire wire) {
  return wire != runtime::Wire::native && shape.size(pmm::batch_axes(shape)) > 1;
}

} // namespace

bool can_start_early(pmm::ProcessGrid const& grid) {
  auto const axes = pmm::batch_axes(grid.shape());
  return grid.size(axes) > 1 && pmm::can_hide_messages(grid.over(axes));
}

void plan_gradient_sum_array(pmm::StepPlan& step, std::vector<std::int64_t> const& lengths,
                             std::int64_t num_accumulated, std::int64_t num_of_experts, runtime::Wire wire) {
  auto const length = length_of_array(step.shape(), lengths, num_accumulated, num_of_experts);
  if (length == 0) return;
  step.add_array("orthant::models::gradient_sum", step.scalar_bytes(length));
  if (keeps_residuals(step.shape(), wire))
    step.add_array("orthant::models::gradient_residuals", step.scalar_bytes(length));
}

void plan_add_gradients(pmm::StepPlan& step, std::vector<std::int64_t> const& lengths, std::int64_t k,
                        std::int64_t num_accumulated, std::int64_t num_of_experts) {
  auto const bytes =
      step.scalar_bytes(length_of_array(step.shape(), lengths, num_accumulated, num_of_experts));
  if (bytes > 0) step.add_pass({"GradientSum/add", k == 0 ? bytes : 2 * bytes, bytes});
}

void plan_gradient_sum(pmm::StepPlan& step, std::vector<std::int64_t> const& lengths,
                       std::int64_t num_accumulated, std::int64_t bucket_bytes, std::int64_t num_of_experts,
                       runtime::Wire wire) {
  auto const bucket = runtime::encoding_of(wire).in_whole_blocks(bucket_bytes / step.scalar_bytes(1));
  auto const add_buckets = [&](pmm::AxisSet axes, std::int64_t length) {
    for (std::int64_t begin = 0; begin < length; begin += bucket)
      step.add_call(runtime::Operation::all_reduce, axes,
                    step.wire_bytes(std::min(bucket, length - begin), wire));
  };
  add_buckets(pmm::batch_axes(step.shape()), sum_of(lengths) - num_of_experts);
  add_buckets(summed_axes(step.shape(), true), num_of_experts);
  auto const bytes =
      step.scalar_bytes(length_of_array(step.shape(), lengths, num_accumulated, num_of_experts));
  if (bytes > 0) step.add_pass({"GradientSum/copy", bytes, bytes});
}

std::int64_t bytes_of_early_sums(pmm::ProcessGrid const& grid, pmm::StepPlan const& step,
                                 std::vector<std::int64_t> const& lengths, std::int64_t num_of_experts) {
  if (!pmm::runs_on_host || !can_start_early(grid)) return 0;
  return std::min(step.scalar_bytes(sum_of(lengths) - num_of_experts), max_open_sums * default_bucket_bytes);
}

template<class T>
GradientSum<T>::GradientSum(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
                            std::vector<std::size_t> const& order, std::int64_t num_accumulated,
                            GradientSumSettings const& settings, std::shared_ptr<GradientShards<T>> shards)
    : grid_(grid),
      num_accumulated_(num_accumulated),
      bucket_length_(
          static_cast<std::size_t>(runtime::encoding_of(settings.wire)
                                       .in_whole_blocks(settings.bucket_bytes / std::int64_t{sizeof(T)}))),
      starts_early_(has_groups() && settings.starts_early.value_or(can_start_early(grid))),
      shards_(std::move(shards)),
      wire_(settings.wire) {
  ORTHANT_REQUIRE(wire_ == runtime::Wire::native ||
                      (sizeof(T) == sizeof(float) && wire_ != runtime::Wire::fp16),
                  "gradients are encoded from fp32, in other formats than fp16");
  ORTHANT_REQUIRE(order.size() == parameters.size() && bucket_length_ > 0, "an order of ", order.size(),
                  " gradients of ", parameters.size(), " parameters, in buckets of ", bucket_length_);
  std::size_t length = 0;
  bool has_seen_expert = false;
  for (auto const place : order) {
    auto const& parameter = parameters[place];
    ORTHANT_REQUIRE(parameter.is_of_expert || !has_seen_expert, parameter.name,
                    " comes after the gradients of experts");
    has_seen_expert = parameter.is_of_expert;
    if (parameter.is_of_expert && !sums_experts(grid.shape(), num_accumulated)) continue;
    auto const is_elsewhere = parameter.is_frozen || (shards_ && shards_->has(place));
    gradients_.push_back(is_elsewhere ? runtime::Vector<T>() : parameter.gradient());
    reserved_.push_back(is_elsewhere ? 0 : static_cast<std::size_t>(parameter.reserved_length(wire_)));
    length += reserved_.back();
    if (!parameter.is_of_expert) length_of_all_ = length;
  }
  if (!has_several_batches(grid.shape(), num_accumulated)) return;
  sum_ = runtime::Vector<T>("orthant::models::gradient_sum", length);
  if (keeps_residuals(grid.shape(), wire_))
    residuals_ = runtime::Vector<T>("orthant::models::gradient_residuals", length);
  started_.reserve(num_buckets(0, length_of_all_));
}

template<class T>
runtime::Vector<T> GradientSum<T>::bucket(runtime::Vector<T> const& array, std::size_t i, std::size_t begin,
                                          std::size_t end) const {
  auto const first = begin + i * bucket_length_;
  return runtime::Vector<T>(array.data() + first, std::min(bucket_length_, end - first));
}

template<class T>
void GradientSum<T>::sum_bucket(runtime::DefaultExec const& exec, pmm::AxisSet axes, std::size_t i,
                                std::size_t begin, std::size_t end) {
  auto const sum = bucket(sum_, i, begin, end);
  if constexpr (std::is_same_v<T, float>)
    if (residuals_.extent(0) > 0)
      return runtime::all_reduce_with_feedback(exec, grid_.over(axes), sum, bucket(residuals_, i, begin, end),
                                               wire_);
  runtime::all_reduce(exec, grid_.over(axes), sum);
}

template<class T>
runtime::Request GradientSum<T>::start_sum_of_bucket(runtime::DefaultExec const& exec, std::size_t i) {
  auto const& over = grid_.over(pmm::batch_axes(grid_.shape()));
  auto const sum = bucket(sum_, i, 0, length_of_all_);
  if constexpr (std::is_same_v<T, float>)
    if (residuals_.extent(0) > 0)
      return runtime::start_all_reduce_with_feedback(exec, over, sum,
                                                     bucket(residuals_, i, 0, length_of_all_), wire_);
  return runtime::start_all_reduce(exec, over, sum);
}

template<class T>
void GradientSum<T>::take(runtime::DefaultExec const& exec, std::int64_t k, std::size_t num_complete) {
  for (; num_taken_ < num_complete; ++num_taken_) {
    auto const& gradient = gradients_[num_taken_];
    auto const length = static_cast<std::int64_t>(gradient.extent(0));
    Kokkos::parallel_for("orthant::models::GradientSum/add",
                         Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, length),
                         Add<T>{gradient, sum_.data() + length_taken_, k == 0});
    length_taken_ += reserved_[num_taken_];
  }
}

template<class T>
void GradientSum<T>::add_early(runtime::DefaultExec const& exec, std::int64_t k, std::size_t num_complete) {
  if (shards_) shards_->take(exec, k, num_complete, true);
  take(exec, k, num_complete);
  if (k + 1 < num_accumulated_) return;
  constexpr auto most_open = static_cast<std::size_t>(max_open_sums);
  while ((started_.size() + 1) * bucket_length_ <= std::min(length_taken_, length_of_all_)) {
    auto const next = started_.size();
    if (next >= most_open) started_[next - most_open].wait();
    started_.push_back(start_sum_of_bucket(exec, next));
  }
}

template<class T>
void GradientSum<T>::add(runtime::DefaultExec const& exec, std::int64_t k) {
  if (!has_several()) return;
  take(exec, k, gradients_.size());
  num_taken_ = length_taken_ = 0;
  auto const bytes = runtime::array_bytes(sum_);
  if (bytes > 0) grid_.passes().add({"GradientSum/add", k == 0 ? bytes : 2 * bytes, bytes});
  if (!shards_) return;
  shards_->take(exec, k, shards_->num_parameters(), false);
  shards_->end_batch(exec, k);
}

/// Starts no asynchronous sums: MPI's blocking sums are faster, and there is no computation left to overlap.
template<class T>
void GradientSum<T>::finish(runtime::DefaultExec const& exec) {
  if (!has_several()) return;
  for (auto i = started_.size(); has_groups() && i < num_buckets(0, length_of_all_); ++i)
    sum_bucket(exec, pmm::batch_axes(grid_.shape()), i, 0, length_of_all_);
  auto const length = sum_.extent(0);
  auto const copies = summed_axes(grid_.shape(), true);
  for (std::size_t i = 0; grid_.size(copies) > 1 && i < num_buckets(length_of_all_, length); ++i)
    sum_bucket(exec, copies, i, length_of_all_, length);
  for (auto& sum : started_)
    sum.wait();
  started_.clear();
  if (shards_) shards_->finish(exec);
  if (sum_.extent(0) > 0)
    grid_.passes().add({"GradientSum/copy", runtime::array_bytes(sum_), runtime::array_bytes(sum_)});
  std::size_t begin = 0;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    auto const own = std::pair(begin, begin + gradients_[i].extent(0));
    Kokkos::deep_copy(exec, gradients_[i], Kokkos::subview(sum_, own));
    begin += reserved_[i];
  }
}

template class GradientSum<float>;
template class GradientSum<double>;

} // namespace orthant::models
