// SPDX-License-Identifier: Apache-2.0
#include "models/training/gradient_sum.hpp"

#include <numeric>

namespace orthant::models {
namespace {

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
  return num_accumulated > 1 || shape.size(pmm::Axis::data) > 1;
}

std::int64_t sum_of(std::vector<std::int64_t> const& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

} // namespace

void plan_gradient_sum_array(pmm::StepPlan& step, std::vector<std::int64_t> const& lengths,
                             std::int64_t num_accumulated) {
  if (has_several_batches(step.shape(), num_accumulated))
    step.add_array("orthant::models::gradient_sum", step.scalar_bytes(sum_of(lengths)));
}

void plan_add_gradients(pmm::StepPlan& step, std::vector<std::int64_t> const& lengths, std::int64_t k,
                        std::int64_t num_accumulated) {
  auto const bytes = step.scalar_bytes(sum_of(lengths));
  if (has_several_batches(step.shape(), num_accumulated))
    step.add_pass({"GradientSum/add", k == 0 ? bytes : 2 * bytes, bytes});
}

void plan_gradient_sum(pmm::StepPlan& step, std::vector<std::int64_t> const& lengths,
                       std::int64_t num_accumulated) {
  auto const bytes = step.scalar_bytes(sum_of(lengths));
  if (bytes > 0) step.add_call(runtime::Operation::all_reduce, pmm::Axis::data, bytes);
  if (has_several_batches(step.shape(), num_accumulated)) step.add_pass({"GradientSum/copy", bytes, bytes});
}

template<class T>
GradientSum<T>::GradientSum(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
                            std::int64_t num_accumulated)
    : grid_(grid) {
  std::size_t length = 0;
  for (auto const& parameter : parameters) {
    gradients_.push_back(parameter.gradient());
    length += parameter.gradient().extent(0);
  }
  if (has_several_batches(grid.shape(), num_accumulated))
    sum_ = runtime::Vector<T>("orthant::models::gradient_sum", length);
}

template<class T>
void GradientSum<T>::add(runtime::DefaultExec const& exec, std::int64_t k) {
  if (!has_several()) return;
  auto const bytes = runtime::array_bytes(sum_);
  grid_.passes().add({"GradientSum/add", k == 0 ? bytes : 2 * bytes, bytes});
  auto* to = sum_.data();
  for (auto const& gradient : gradients_) {
    auto const length = static_cast<std::int64_t>(gradient.extent(0));
    Kokkos::parallel_for("orthant::models::GradientSum/add",
                         Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, length),
                         Add<T>{gradient, to, k == 0});
    to += length;
  }
}

template<class T>
void GradientSum<T>::finish(runtime::DefaultExec const& exec) {
  if (!has_several()) return;
  if (grid_.size(pmm::Axis::data) > 1) runtime::all_reduce(exec, grid_.over(pmm::Axis::data), sum_);
  grid_.passes().add({"GradientSum/copy", runtime::array_bytes(sum_), runtime::array_bytes(sum_)});
  std::size_t begin = 0;
  for (auto const& gradient : gradients_) {
    auto const end = begin + gradient.extent(0);
    Kokkos::deep_copy(exec, gradient, Kokkos::subview(sum_, std::pair(begin, end)));
    begin = end;
  }
}

template class GradientSum<float>;
template class GradientSum<double>;

} // namespace orthant::models
