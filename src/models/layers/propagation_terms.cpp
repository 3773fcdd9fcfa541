// SPDX-License-Identifier: Apache-2.0
#include "models/layers/propagation_terms.hpp"

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using Policy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

runtime::LocalPass teleport_pass(std::int64_t bytes) {
  return {"add_teleport", 2 * bytes, bytes};
}
runtime::LocalPass split_pass(StartGradient which, std::int64_t bytes) {
  return {"split_gradient", (which == StartGradient::first ? 1 : 2) * bytes, 2 * bytes};
}
template<class T>
std::int64_t bytes_of_block(pmm::DistMatrix<T> const& matrix) {
  return matrix.block().num_stored * static_cast<std::int64_t>(sizeof(T));
}

template<class T>
void require_alike(pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& y) {
  ORTHANT_REQUIRE(x.placement() == y.placement(), x.placement().to_string(), " of a teleport to ",
                  y.placement().to_string());
}

} // namespace

template<class T>
void add_teleport(DefaultExec const& exec, double alpha, pmm::DistMatrix<T> const& start,
                  pmm::DistMatrix<T> const& sum) {
  require_alike(start, sum);
  sum.grid().passes().add(teleport_pass(bytes_of_block(sum)));
  auto const of_sum = static_cast<T>(1 - alpha);
  auto const of_start = static_cast<T>(alpha);
  T const* const from = start.storage().data();
  T* const to = sum.storage().data();
  Kokkos::parallel_for(
      "orthant::models::add_teleport", Policy(exec, 0, sum.block().num_stored),
      KOKKOS_LAMBDA(std::int64_t i) { to[i] = of_sum * to[i] + of_start * from[i]; });
}

template<class T>
void split_gradient(DefaultExec const& exec, double alpha, StartGradient which,
                    pmm::DistMatrix<T> const& gradient, pmm::DistMatrix<T> const& start_gradient) {
  require_alike(gradient, start_gradient);
  gradient.grid().passes().add(split_pass(which, bytes_of_block(gradient)));
  auto const of_sum = static_cast<T>(1 - alpha);
  auto const of_start = static_cast<T>(alpha);
  auto const adds = which == StartGradient::further;
  T* const numbers = gradient.storage().data();
  T* const starts = start_gradient.storage().data();
  Kokkos::parallel_for(
      "orthant::models::split_gradient", Policy(exec, 0, gradient.block().num_stored),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto const share = of_start * numbers[i];
        starts[i] = adds ? starts[i] + share : share;
        numbers[i] *= of_sum;
      });
}

void plan_add_teleport(pmm::StepPlan& step, pmm::Placement const& sum) {
  step.add_pass(teleport_pass(step.scalar_bytes(step.block(sum).num_stored)));
}

void plan_split_gradient(pmm::StepPlan& step, StartGradient which, pmm::Placement const& gradient) {
  step.add_pass(split_pass(which, step.scalar_bytes(step.block(gradient).num_stored)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void add_teleport(DefaultExec const&, double, pmm::DistMatrix<T> const&,                          \
                             pmm::DistMatrix<T> const&);                                                     \
  template void split_gradient(DefaultExec const&, double, StartGradient, pmm::DistMatrix<T> const&,         \
                               pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

namespace {

runtime::LocalPass pass_of(std::string_view name, std::int64_t bytes) {
  return {name, bytes, bytes};
}
template<class T>
std::int64_t map_bytes(pmm::DistMatrix<T> const& matrix) {
  return matrix.block().num_stored * static_cast<std::int64_t>(sizeof(T));
}

} // namespace

template<class T>
void map_identity(DefaultExec const& exec, pmm::DistMatrix<T> const& weight, double beta,
                  pmm::DistMatrix<T> const& map) {
  ORTHANT_REQUIRE(weight.placement() == map.placement(), weight.placement().to_string(), " mapped to ",
                  map.placement().to_string());
  weight.grid().passes().add(pass_of("map_identity", map_bytes(weight)));
  auto const block = weight.block();
  auto const num_columns = block.columns.size();
  auto const of_identity = static_cast<T>(1 - beta);
  auto const of_weight = static_cast<T>(beta);
  T const* const from = weight.storage().data();
  T* const to = map.storage().data();
  Kokkos::parallel_for(
      "orthant::models::map_identity", Policy(exec, 0, block.num_stored), KOKKOS_LAMBDA(std::int64_t i) {
        auto const place = block.first + i;
        auto const is_diagonal =
            block.rows.begin + place / num_columns == block.columns.begin + place % num_columns;
        to[i] = of_weight * from[i] + (is_diagonal ? of_identity : T{0});
      });
}

template<class T>
void map_identity_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& gradient, double beta) {
  gradient.grid().passes().add(pass_of("map_identity_backward", map_bytes(gradient)));
  auto const of_weight = static_cast<T>(beta);
  T* const numbers = gradient.storage().data();
  Kokkos::parallel_for(
      "orthant::models::map_identity_backward", Policy(exec, 0, gradient.block().num_stored),
      KOKKOS_LAMBDA(std::int64_t i) { numbers[i] *= of_weight; });
}

void plan_map_identity(pmm::StepPlan& step, pmm::Placement const& weight) {
  step.add_pass(pass_of("map_identity", step.scalar_bytes(step.block(weight).num_stored)));
}

void plan_map_identity_backward(pmm::StepPlan& step, pmm::Placement const& weight) {
  step.add_pass(pass_of("map_identity_backward", step.scalar_bytes(step.block(weight).num_stored)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void map_identity(DefaultExec const&, pmm::DistMatrix<T> const&, double,                          \
                             pmm::DistMatrix<T> const&);                                                     \
  template void map_identity_backward(DefaultExec const&, pmm::DistMatrix<T> const&, double);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
