// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation/residual.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/packs.hpp"

namespace orthant::models {

using runtime::DefaultExec;

namespace {

/// sum := x + y, on a device.
template<class T>
struct AddPack {
  pmm::PackedArray<T const> x, y;
  pmm::PackedArray<T> sum;

  KOKKOS_FUNCTION void operator()(std::int64_t first, std::int64_t count) const {
    auto pack = x.load(first, count);
    pmm::add(pack, y.load(first, count));
    sum.store(first, count, pack);
  }
};

} // namespace

template<class T>
ResidualPath<T> make_residual_path(pmm::ProcessGrid const& grid, pmm::Placement const& input,
                                   pmm::Placement const& output, std::vector<std::int64_t> const& input_rows,
                                   std::vector<std::int64_t> const& output_rows) {
  return {std::make_shared<pmm::Relayout<T> const>(grid, input, output, input_rows),
          std::make_shared<pmm::Relayout<T> const>(grid, output, input, output_rows)};
}

void plan_residual_arrays(pmm::StepPlan& step, NetworkLayerPlan const& plan,
                          NetworkEpochTraits const& traits) {
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
void add(DefaultExec const& exec, pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& y,
         pmm::DistMatrix<T> const& sum) {
  ORTHANT_REQUIRE(x.placement() == y.placement() && x.placement() == sum.placement(),
                  x.placement().to_string(), " and ", y.placement().to_string(), " added to ",
                  sum.placement().to_string());
  constexpr auto label = "orthant::models::add";
  T const* const left = x.storage().data();
  T const* const right = y.storage().data();
  T* const result = sum.storage().data();
  auto const count = sum.block().num_stored;
  auto const bytes = count * static_cast<std::int64_t>(sizeof(T));
  x.grid().passes().add({"add", 2 * bytes, bytes});
  if constexpr (pmm::runs_on_host)
    pmm::for_each_part(exec, label, count, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (auto i = begin; i < end; ++i)
        result[i] = T(left[i] + right[i]);
    });
  else
    pmm::for_each_pack<T>(exec, label, count,
                          AddPack<T>{pmm::PackedArray<T const>(left), pmm::PackedArray<T const>(right),
                                     pmm::PackedArray<T>(result)});
}

template ResidualPath<float> make_residual_path(pmm::ProcessGrid const&, pmm::Placement const&,
                                                pmm::Placement const&, std::vector<std::int64_t> const&,
                                                std::vector<std::int64_t> const&);
template ResidualPath<double> make_residual_path(pmm::ProcessGrid const&, pmm::Placement const&,
                                                 pmm::Placement const&, std::vector<std::int64_t> const&,
                                                 std::vector<std::int64_t> const&);
#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void add(DefaultExec const&, pmm::DistMatrix<T> const&, pmm::DistMatrix<T> const&,                \
                    pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
