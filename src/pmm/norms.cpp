// SPDX-License-Identifier: Apache-2.0
#include "pmm/norms.hpp"

namespace orthant::pmm {
namespace {

template<class T>
struct Square {
  Vector<T> numbers;
  KOKKOS_FUNCTION void operator()(std::int64_t i, double& sum) const {
    auto const number = static_cast<double>(numbers(static_cast<std::size_t>(i)));
    sum += number * number;
  }
};

template<class T>
double sum_of_squares(DefaultExec const& exec, Vector<T> const& numbers, std::int64_t count) {
  auto sum = 0.0;
  Kokkos::parallel_reduce("orthant::pmm::local_squared_norm",
                          Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count), Square<T>{numbers},
                          sum);
  return sum;
}

} // namespace

template<class T>
double local_squared_norm(DefaultExec const& exec, DistMatrix<T> const& matrix) {
  if (!matrix.is_first_replica()) return 0;
  return sum_of_squares(exec, matrix.storage(), matrix.block().num_stored);
}

template<class T>
double local_squared_norm(DefaultExec const& exec, DistVector<T> const& vector) {
  if (!vector.is_first_replica()) return 0;
  return sum_of_squares(exec, vector.local(), vector.range().size());
}

void sum_over_group(ProcessGrid const& grid, std::span<double> shares) {
  runtime::all_reduce(runtime::host, grid.group(), shares);
}

template double local_squared_norm(DefaultExec const&, DistMatrix<float> const&);
template double local_squared_norm(DefaultExec const&, DistMatrix<double> const&);
template double local_squared_norm(DefaultExec const&, DistVector<float> const&);
template double local_squared_norm(DefaultExec const&, DistVector<double> const&);

} // namespace orthant::pmm
