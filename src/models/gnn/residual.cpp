// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/residual.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/packs.hpp"

namespace orthant::models {

using runtime::DefaultExec;

namespace {

/// target := target + source; a number a work item on host processors, a pack on a device.
template<class T>
class AddNumbers {
 public:
  AddNumbers(T const* source, T* target) : source_(source), target_(target) {}

  KOKKOS_FUNCTION void operator()(std::int64_t i) const { target_[i] += source_[i]; }
  KOKKOS_FUNCTION void operator()(std::int64_t first, std::int64_t count) const {
    auto sums = target_.load(first, count);
    pmm::add(sums, source_.load(first, count));
    target_.store(first, count, sums);
  }

 private:
  pmm::PackedArray<T const> source_;
  pmm::PackedArray<T> target_;
};

} // namespace

template<class T>
ResidualPath<T> make_residual_path(pmm::ProcessGrid const& grid, GcnLayerPlan const& plan,
                                   std::vector<std::int64_t> const& input_rows,
                                   std::vector<std::int64_t> const& output_rows) {
  return {std::make_shared<pmm::Relayout<T> const>(grid, plan.input, plan.output, input_rows),
          std::make_shared<pmm::Relayout<T> const>(grid, plan.output, plan.input, output_rows)};
}

void plan_residual_arrays(pmm::StepPlan& step, GcnLayerPlan const& plan, GcnEpochTraits const& traits) {
  if (!plan.is_residual) return;
  if (plan.owners) {
    if (plan.owners->kept)
      plan_row_selection(step, step.block(plan.output).rows.size(), step.block(plan.input).rows.size());
    return;
  }
  for (auto const is_backward : {false, true})
    plan_relayout_arrays(step, traits.residual_sizes(plan, is_backward));
}

template<class T>
void add(DefaultExec const& exec, pmm::DistMatrix<T> const& from, pmm::DistMatrix<T> const& to) {
  ORTHANT_REQUIRE(from.placement() == to.placement(), from.placement().to_string(), " added to ",
                  to.placement().to_string());
  constexpr auto label = "orthant::models::add";
  AddNumbers<T> const sum(from.storage().data(), to.storage().data());
  auto const count = to.block().num_stored;
  if constexpr (pmm::runs_on_host)
    Kokkos::parallel_for(label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count), sum);
  else
    pmm::for_each_pack(exec, label, count, sum);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template ResidualPath<T> make_residual_path(pmm::ProcessGrid const&, GcnLayerPlan const&,                  \
                                              std::vector<std::int64_t> const&,                              \
                                              std::vector<std::int64_t> const&);                             \
  template void add(DefaultExec const&, pmm::DistMatrix<T> const&, pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
