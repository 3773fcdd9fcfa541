// SPDX-License-Identifier: Apache-2.0
#include "models/residual.hpp"

namespace orthant::models {

using runtime::DefaultExec;

template<class T>
ResidualPath<T> make_residual_path(pmm::ProcessGrid const& grid, GcnLayerPlan const& plan,
                                   std::vector<std::int64_t> const& input_rows,
                                   std::vector<std::int64_t> const& output_rows) {
  return {std::make_shared<pmm::Relayout<T> const>(grid, plan.input, plan.output, input_rows),
          std::make_shared<pmm::Relayout<T> const>(grid, plan.output, plan.input, output_rows)};
}

template<class T>
void add(DefaultExec const& exec, pmm::DistMatrix<T> const& from, pmm::DistMatrix<T> const& to) {
  ORTHANT_REQUIRE(from.placement() == to.placement(), from.placement().to_string(), " added to ",
                  to.placement().to_string());
  auto const* const source = from.storage().data();
  auto* const target = to.storage().data();
  Kokkos::parallel_for(
      "orthant::models::add", Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, to.block().num_stored),
      KOKKOS_LAMBDA(std::int64_t i) { target[i] += source[i]; });
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
