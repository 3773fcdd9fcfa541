// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/network/output_checks.hpp"

#include "runtime/numbers/formats.hpp"

namespace orthant::models {

using runtime::DefaultExec;

template<class T>
bool is_finite(DefaultExec const& exec, pmm::DistMatrix<T> const& matrix) {
  auto const data = matrix.storage();
  auto num_bad = std::int64_t{0};
  Kokkos::parallel_reduce(
      "orthant::models::is_finite",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, matrix.block().num_stored),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t & bad) {
        runtime::SumOf<T> const number = data(static_cast<std::size_t>(i));
        auto const difference = number - number;
        bad += difference == 0 ? 0 : 1; // inf - inf and NaN - NaN are NaN
      },
      num_bad);
  return num_bad == 0;
}

template<class T>
std::int64_t count_positive(DefaultExec const& exec, pmm::DistMatrix<T> const& matrix) {
  auto const data = matrix.storage();
  std::int64_t count = 0;
  Kokkos::parallel_reduce(
      "orthant::models::count_positive",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, matrix.block().num_stored),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t & sum) {
        runtime::SumOf<T> const number = data(static_cast<std::size_t>(i));
        sum += number > 0 ? 1 : 0;
      },
      count);
  return count;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template bool is_finite(DefaultExec const&, pmm::DistMatrix<T> const&);                                    \
  template std::int64_t count_positive(DefaultExec const&, pmm::DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
