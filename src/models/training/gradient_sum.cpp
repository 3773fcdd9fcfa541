// SPDX-License-Identifier: Apache-2.0
#include "models/training/gradient_sum.hpp"

#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace orthant::models {
namespace {

/// to := from, or to += from. `places`: of the elements of `from`; null for all of them.
template<class T>
struct Add {
  T const* from;
  std::int32_t const* places;
  T* to;
  bool is_first;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const number = from[places == nullptr ? i : places[i]];
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
std::int64_t length_of_array(pmm::GridShape const& shape, SummedElements const& elements,
                             std::int64_t num_accumulated) {
  if (!has_several_batches(shape, num_accumulated)) return elements.num_pruned;
  auto const has_experts = sums_experts(shape, num_accumulated) || elements.num_pruned > 0;
  return elements.num_of_all + elements.num_of_statistics + (has_experts ? elements.num_of_experts : 0);
}

/// Bytes of the places that are read to take the kept entries.
std::int64_t bytes_of_places(std::int64_t num_kept) {
  return num_kept * static_cast<std::int64_t>(sizeof(std::int32_t));
}

/// Whether messages lose something.
bool keeps_residuals(pmm::GridShape const& shape, runtime::Wire wire) {
  return wire != runtime::Wire::native && shape.size(pmm::batch_axes(shape)) > 1;
}

} // namespace

void SummedElements::add(ParameterRole role, bool is_of_expert, std::int64_t length, std::int64_t reserved) {
  if (role == ParameterRole::statistic && wire != runtime::Wire::native)
    num_of_statistics += length;
  else
    (is_of_expert ? num_of_experts : num_of_all) += reserved;
}

bool can_start_early(pmm::ProcessGrid const& grid) {
  auto const axes = pmm::batch_axes(grid.shape());
  return grid.size(axes) > 1 && pmm::can_hide_messages(grid.over(axes));
}

void plan_gradient_sum_array(pmm::StepPlan& step, SummedElements const& elements,
                             std::int64_t num_accumulated) {
  auto const length = length_of_array(step.shape(), elements, num_accumulated);
  if (length == 0) return;
  step.add_array("orthant::models::gradient_sum", step.scalar_bytes(length));
  if (keeps_residuals(step.shape(), elements.wire))
    step.add_array("orthant::models::gradient_residuals",
                   step.scalar_bytes(length - elements.num_of_statistics));
}

void plan_add_gradients(pmm::StepPlan& step, SummedElements const& elements, std::int64_t k,
                        std::int64_t num_accumulated) {
  auto const bytes = step.scalar_bytes(length_of_array(step.shape(), elements, num_accumulated));
  if (bytes > 0)
    step.add_pass(
        {"GradientSum/add", (k == 0 ? bytes : 2 * bytes) + bytes_of_places(elements.num_pruned), bytes});
}

void plan_gradient_sum(pmm::StepPlan& step, SummedElements const& elements, std::int64_t num_accumulated,
                       std::int64_t bucket_bytes) {
  auto const bucket =
      runtime::encoding_of(elements.wire).in_whole_blocks(bucket_bytes / step.scalar_bytes(1));
  auto const add_buckets = [&](pmm::AxisSet axes, std::int64_t length, runtime::Wire wire) {
    for (std::int64_t begin = 0; begin < length; begin += bucket)
      step.add_call(runtime::Operation::all_reduce, axes,
                    step.wire_bytes(std::min(bucket, length - begin), wire));
  };
  add_buckets(pmm::batch_axes(step.shape()), elements.num_of_all, elements.wire);
  add_buckets(summed_axes(step.shape(), true), elements.num_of_experts, elements.wire);
  add_buckets(pmm::batch_axes(step.shape()), elements.num_of_statistics, runtime::Wire::native);
  auto const bytes =
      step.scalar_bytes(length_of_array(step.shape(), elements, num_accumulated) - elements.num_pruned);
  if (bytes > 0) step.add_pass({"GradientSum/copy", bytes, bytes});
}

std::int64_t bytes_of_sums(pmm::ProcessGrid const& grid, pmm::StepPlan const& step,
                           SummedElements const& elements) {
  auto const is_encoded = keeps_residuals(grid.shape(), elements.wire);
  auto const starts_early = can_start_early(grid);
  if (!pmm::runs_on_host || (!is_encoded && !starts_early)) return 0;
  auto const num_open = starts_early ? max_open_sums : 1;
  auto const length = std::min(elements.num_of_all, num_open * default_bucket_bytes / step.scalar_bytes(1));
  auto const num_copies = is_encoded ? 3 : 1; // numbers that are sent, numbers that arrive, and sums
  return num_copies * step.wire_bytes(length, elements.wire);
}

template<class T>
GradientSum<T>::GradientSum(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
                            std::vector<std::size_t> const& order, std::int64_t num_accumulated,
                            GradientSumSettings const& settings, std::shared_ptr<GradientShards<T>> shards,
                            PrunedWeights<T> const* pruned)
    : grid_(grid),
      num_accumulated_(num_accumulated),
      bucket_length_(
          static_cast<std::size_t>(runtime::encoding_of(settings.wire)
                                       .in_whole_blocks(settings.bucket_bytes / std::int64_t{sizeof(T)}))),
      starts_early_(has_groups() && settings.starts_early.value_or(can_start_early(grid))),
      prunes_(pruned != nullptr),
      elements_{settings.wire},
      shards_(std::move(shards)) {
  auto const is_encoded = settings.wire != runtime::Wire::native;
  ORTHANT_REQUIRE(!is_encoded || (sizeof(T) == sizeof(float) && settings.wire != runtime::Wire::fp16),
                  "gradients are encoded from fp32, in other formats than fp16");
  ORTHANT_REQUIRE(order.size() == parameters.size() && bucket_length_ > 0, "an order of ", order.size(),
                  " gradients of ", parameters.size(), " parameters, in buckets of ", bucket_length_);
  std::vector<std::size_t> statistics; // places in gradients_
  bool has_seen_expert = false;
  for (auto const place : order) {
    auto const& parameter = parameters[place];
    ORTHANT_REQUIRE(parameter.is_of_expert || !has_seen_expert, parameter.name,
                    " comes after the gradients of experts");
    has_seen_expert = parameter.is_of_expert;
    auto const is_pruned = prunes_ && pruned->has(place);
    auto const is_summed = parameter.is_of_expert ? sums_experts(grid.shape(), num_accumulated)
                                                  : has_several_batches(grid.shape(), num_accumulated);
    auto const is_elsewhere =
        parameter.is_frozen || (shards_ && shards_->has(place)) || !(is_summed || is_pruned);
    if (parameter.is_statistic() && is_encoded) statistics.push_back(gradients_.size());
    auto& summed = gradients_.emplace_back();
    summed.begin = static_cast<std::size_t>(elements_.num_of_all + elements_.num_of_experts);
    summed.parameter = place;
    if (!is_elsewhere) summed.gradient = parameter.gradient();
    if (is_pruned) summed.kept = pruned->kept(place);
    summed.is_pruned = is_pruned;
    summed.length = (summed.kept ? summed.kept->extent(0) : summed.gradient.extent(0));
    auto const length = static_cast<std::int64_t>(summed.length);
    auto const reserved = is_elsewhere || is_pruned ? length : parameter.reserved_length(settings.wire);
    elements_.add(parameter.role, parameter.is_of_expert, length, reserved);
    if (is_pruned) elements_.num_pruned += length;
  }
  auto length = static_cast<std::size_t>(elements_.num_of_all + elements_.num_of_experts);
  auto const num_encoded = length;
  for (auto const place : statistics) {
    gradients_[place].begin = length;
    length += gradients_[place].length;
  }
  if (length == 0) return;
  sum_ = runtime::Vector<T>("orthant::models::gradient_sum", length);
  if (keeps_residuals(grid.shape(), settings.wire))
    residuals_ = runtime::Vector<T>("orthant::models::gradient_residuals", num_encoded);
  started_.reserve(num_buckets(elements_.num_of_all));
}

template<class T>
runtime::Vector<T> GradientSum<T>::bucket(runtime::Vector<T> const& array, std::size_t i, std::int64_t begin,
                                          std::int64_t length) const {
  auto const first = i * bucket_length_;
  return runtime::Vector<T>(array.data() + static_cast<std::size_t>(begin) + first,
                            std::min(bucket_length_, static_cast<std::size_t>(length) - first));
}

template<class T>
void GradientSum<T>::sum_buckets(runtime::DefaultExec const& exec, pmm::AxisSet axes, std::size_t first,
                                 std::int64_t begin, std::int64_t length) {
  if (grid_.size(axes) == 1) return;
  for (auto i = first; i < num_buckets(length); ++i) {
    auto const sum = bucket(sum_, i, begin, length);
    if constexpr (std::is_same_v<T, float>)
      if (static_cast<std::size_t>(begin) < residuals_.extent(0)) {
        runtime::all_reduce_with_feedback(exec, grid_.over(axes), sum, bucket(residuals_, i, begin, length),
                                          elements_.wire);
        continue;
      }
    runtime::all_reduce(exec, grid_.over(axes), sum);
  }
}

template<class T>
runtime::Request GradientSum<T>::start_sum_of_bucket(runtime::DefaultExec const& exec, std::size_t i) {
  auto const& over = grid_.over(pmm::batch_axes(grid_.shape()));
  auto const sum = bucket(sum_, i, 0, elements_.num_of_all);
  if constexpr (std::is_same_v<T, float>)
    if (residuals_.extent(0) > 0)
      return runtime::start_all_reduce_with_feedback(
          exec, over, sum, bucket(residuals_, i, 0, elements_.num_of_all), elements_.wire);
  return runtime::start_all_reduce(exec, over, sum);
}

template<class T>
std::size_t GradientSum<T>::length_taken() const {
  auto const all = static_cast<std::size_t>(elements_.num_of_all);
  for (auto i = num_taken_; i < gradients_.size(); ++i)
    if (gradients_[i].begin < all) return gradients_[i].begin;
  return all;
}

template<class T>
void GradientSum<T>::take(runtime::DefaultExec const& exec, std::int64_t k, std::size_t num_complete) {
  for (; num_taken_ < num_complete; ++num_taken_) {
    auto const& summed = gradients_[num_taken_];
    auto const length = static_cast<std::int64_t>(summed.length);
    Kokkos::parallel_for("orthant::models::GradientSum/add",
                         Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, length),
                         Add<T>{summed.gradient.data(), summed.kept ? summed.kept->data() : nullptr,
                                sum_.data() + summed.begin, k == 0});
  }
}

template<class T>
void GradientSum<T>::add_early(runtime::DefaultExec const& exec, std::int64_t k, std::size_t num_complete) {
  if (shards_) shards_->take(exec, k, num_complete, true);
  take(exec, k, num_complete);
  if (!starts_early_ || k + 1 < num_accumulated_) return;
  constexpr auto most_open = static_cast<std::size_t>(max_open_sums);
  for (auto const complete = length_taken(); (started_.size() + 1) * bucket_length_ <= complete;) {
    auto const next = started_.size();
    if (next >= most_open) started_[next - most_open].wait();
    started_.push_back(start_sum_of_bucket(exec, next));
  }
}

template<class T>
void GradientSum<T>::add(runtime::DefaultExec const& exec, std::int64_t k) {
  if (!has_several()) return;
  take(exec, k, gradients_.size());
  num_taken_ = 0;
  auto const bytes = runtime::array_bytes(sum_);
  if (bytes > 0)
    grid_.passes().add(
        {"GradientSum/add", (k == 0 ? bytes : 2 * bytes) + bytes_of_places(elements_.num_pruned), bytes});
  if (!shards_) return;
  shards_->take(exec, k, shards_->num_parameters(), false);
  shards_->end_batch(exec, k);
}

/// Starts no asynchronous sums: MPI's blocking sums are faster, and there is no computation left to overlap.
template<class T>
void GradientSum<T>::finish(runtime::DefaultExec const& exec) {
  if (!has_several()) return;
  auto const batches = pmm::batch_axes(grid_.shape());
  auto const experts_begin = elements_.num_of_all,
             statistics_begin = experts_begin + elements_.num_of_experts;
  sum_buckets(exec, batches, started_.size(), 0, elements_.num_of_all);
  sum_buckets(exec, summed_axes(grid_.shape(), true), 0, experts_begin, elements_.num_of_experts);
  sum_buckets(exec, batches, 0, statistics_begin, elements_.num_of_statistics);
  for (auto& sum : started_)
    sum.wait();
  started_.clear();
  if (shards_) shards_->finish(exec);
  auto const copied =
      runtime::array_bytes(sum_) - elements_.num_pruned * static_cast<std::int64_t>(sizeof(T));
  if (copied > 0) grid_.passes().add({"GradientSum/copy", copied, copied});
  for (auto const& summed : gradients_)
    if (!summed.is_pruned) Kokkos::deep_copy(exec, summed.gradient, part_of(summed));
}

template<class T>
runtime::Vector<T> GradientSum<T>::part_of(Summed const& summed) const {
  return runtime::Vector<T>(Kokkos::subview(sum_, std::pair(summed.begin, summed.begin + summed.length)));
}

template<class T>
runtime::Vector<T> GradientSum<T>::pruned_gradient(std::size_t parameter) const {
  auto const summed = std::ranges::find(gradients_, parameter, &Summed::parameter);
  ORTHANT_REQUIRE(summed != gradients_.end() && summed->is_pruned, "parameter ", parameter, " is not pruned");
  return part_of(*summed);
}

template class GradientSum<float>;
template class GradientSum<double>;

} // namespace orthant::models
