// SPDX-License-Identifier: Apache-2.0
#include "models/training/step_numbers.hpp"

#include "pmm/kernels/host_parts.hpp"

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using runtime::Vector;
using Once = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

struct AddToSums {
  Vector<double> loss_and_count;
  Vector<double> sums;
  double weight;
  bool is_first;
  KOKKOS_FUNCTION void operator()(std::int64_t) const {
    sums(0) = (is_first ? 0.0 : sums(0)) + loss_and_count(0) * weight;
    sums(1) = (is_first ? 0.0 : sums(1)) + loss_and_count(1);
  }
};

/// One work item: there are a few norms per layer.
struct FinishNorms {
  Vector<double> norms;
  Vector<double> sums;
  runtime::Number<double> scale;
  double nominal_count;
  double gradient_scale;
  double clip_norm;
  KOKKOS_FUNCTION void operator()(std::int64_t) const {
    auto factor = 1.0;
    if (nominal_count > 0) factor = sums(1) == 0 ? 0.0 : nominal_count / sums(1);
    factor /= gradient_scale;
    auto squared = 0.0;
    for (std::size_t p = 0; p < norms.extent(0); ++p) {
      auto const norm = factor * runtime::compat::sqrt(norms(p));
      norms(p) = norm;
      squared += norm * norm;
    }
    auto const clip = clip_norm / (runtime::compat::sqrt(squared) + 1e-6);
    scale() = clip_norm > 0 && clip < 1.0 ? factor * clip : factor;
  }
};

} // namespace

void plan_step_numbers(pmm::StepPlan& step, std::int64_t num_norms) {
  auto const count = static_cast<std::int64_t>(StepNumbers::first_norm) + num_norms;
  step.add_array("orthant::models::step_numbers", count * std::int64_t{sizeof(double)});
}

StepNumbers::StepNumbers(std::size_t num_norms)
    : numbers_("orthant::models::step_numbers", first_norm + num_norms) {
  if constexpr (!pmm::runs_on_host)
    on_host_ = decltype(on_host_)("orthant::models::step_numbers", numbers_.extent(0));
}

void StepNumbers::add_to_sums(DefaultExec const& exec, std::int64_t k, double weight) const {
  Kokkos::parallel_for("orthant::models::add_to_sums", Once(exec, 0, 1),
                       AddToSums{loss_and_count(), sums(), weight, k == 0});
}

void StepNumbers::finish_norms(DefaultExec const& exec, double nominal_count, double gradient_scale,
                               double clip_norm) const {
  Kokkos::parallel_for("orthant::models::finish_norms", Once(exec, 0, 1),
                       FinishNorms{norms(), sums(), scale(), nominal_count, gradient_scale, clip_norm});
}

StepNumbers::OnHost StepNumbers::read(DefaultExec const& exec) const {
  auto const* numbers = numbers_.data();
  if constexpr (!pmm::runs_on_host) {
    Kokkos::deep_copy(exec, on_host_, numbers_);
    numbers = on_host_.data();
  }
  runtime::compat::fence(exec, "orthant::models::StepNumbers/the end of a step");
  return {numbers[0], numbers[2], numbers[3], numbers[5], {numbers + first_norm, num_norms()}};
}

} // namespace orthant::models
