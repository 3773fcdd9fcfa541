// SPDX-License-Identifier: Apache-2.0
#include "models/layers/joined_numbers.hpp"

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using NumbersPolicy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

std::int64_t bytes_of_winners(std::int64_t count) {
  return count * std::int64_t{sizeof(std::uint16_t)};
}
runtime::LocalPass maximum_pass(std::size_t number, std::int64_t count, std::int64_t bytes) {
  return {"join_maximum", number == 0 ? bytes : 2 * bytes + bytes_of_winners(count),
          bytes + bytes_of_winners(count)};
}
runtime::LocalPass share_pass(std::int64_t count, std::int64_t bytes) {
  return {"share_of_maximum", bytes + bytes_of_winners(count), bytes};
}
runtime::LocalPass scale_pass(std::int64_t bytes) {
  return {"scale_numbers", bytes, bytes};
}
template<class T>
std::int64_t bytes_of_numbers(std::int64_t count) {
  return count * static_cast<std::int64_t>(sizeof(T));
}

} // namespace

template<class T>
void join_maximum(DefaultExec const& exec, std::size_t number, pmm::DistMatrix<T> const& x,
                  pmm::DistMatrix<T> const& maximum, runtime::Vector<std::uint16_t> const& winners) {
  ORTHANT_REQUIRE(x.placement() == maximum.placement() && number < 65536, "layer ", number, " of a maximum");
  auto const count = maximum.block().num_stored;
  maximum.grid().passes().add(maximum_pass(number, count, bytes_of_numbers<T>(count)));
  T const* const from = x.storage().data();
  T* const to = maximum.storage().data();
  auto* const winner = winners.data();
  auto const own = static_cast<std::uint16_t>(number);
  Kokkos::parallel_for(
      "orthant::models::join_maximum", NumbersPolicy(exec, 0, count), KOKKOS_LAMBDA(std::int64_t i) {
        auto const is_nan = !(from[i] == from[i]); // is kept, so that it shows in the loss
        if (own > 0 && !(from[i] > to[i]) && !is_nan) return;
        to[i] = from[i];
        winner[i] = own;
      });
}

template<class T>
void share_of_maximum(DefaultExec const& exec, std::size_t number, pmm::DistMatrix<T> const& gradient,
                      runtime::Vector<std::uint16_t> const& winners, pmm::DistMatrix<T> const& share) {
  ORTHANT_REQUIRE(gradient.placement() == share.placement(), gradient.placement().to_string(), " shared as ",
                  share.placement().to_string());
  auto const count = gradient.block().num_stored;
  gradient.grid().passes().add(share_pass(count, bytes_of_numbers<T>(count)));
  T const* const from = gradient.storage().data();
  T* const to = share.storage().data();
  auto const* const winner = winners.data();
  auto const own = static_cast<std::uint16_t>(number);
  Kokkos::parallel_for(
      "orthant::models::share_of_maximum", NumbersPolicy(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) { to[i] = winner[i] == own ? from[i] : T{0}; });
}

template<class T>
void scale_numbers(DefaultExec const& exec, double factor, pmm::DistMatrix<T> const& x) {
  auto const count = x.block().num_stored;
  x.grid().passes().add(scale_pass(bytes_of_numbers<T>(count)));
  T* const numbers = x.storage().data();
  auto const scale = static_cast<T>(factor);
  Kokkos::parallel_for(
      "orthant::models::scale_numbers", NumbersPolicy(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) { numbers[i] *= scale; });
}

void plan_join_maximum(pmm::StepPlan& step, std::size_t number, pmm::Placement const& maximum) {
  auto const count = step.block(maximum).num_stored;
  step.add_pass(maximum_pass(number, count, step.scalar_bytes(count)));
}
void plan_share_of_maximum(pmm::StepPlan& step, pmm::Placement const& gradient) {
  auto const count = step.block(gradient).num_stored;
  step.add_pass(share_pass(count, step.scalar_bytes(count)));
}
void plan_scale_numbers(pmm::StepPlan& step, pmm::Placement const& x) {
  step.add_pass(scale_pass(step.scalar_bytes(step.block(x).num_stored)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void join_maximum(DefaultExec const&, std::size_t, pmm::DistMatrix<T> const&,                     \
                             pmm::DistMatrix<T> const&, runtime::Vector<std::uint16_t> const&);              \
  template void share_of_maximum(DefaultExec const&, std::size_t, pmm::DistMatrix<T> const&,                 \
                                 runtime::Vector<std::uint16_t> const&, pmm::DistMatrix<T> const&);          \
  template void scale_numbers(DefaultExec const&, double, pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
