// SPDX-License-Identifier: Apache-2.0
#include "pmm/rows/norms.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "runtime/arrays/views.hpp"

#include <algorithm>
#include <array>

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

/// Sums the squares of a block of numbers in 16 independent partial sums; in a single sum, each addition would wait for the one
/// before.
template<class T>
struct BlockOfSquares {
  static constexpr std::int64_t length = 4096;

  T const* numbers;
  std::int64_t count;

  void operator()(std::int64_t block, double& sum) const {
    constexpr std::size_t num_sums = 16;
    auto const begin = block * length;
    auto const end = std::min(begin + length, count);
    std::array<double, num_sums> sums{};
    auto i = begin;
    for (; i + static_cast<std::int64_t>(num_sums) <= end; i += num_sums)
      for (std::size_t j = 0; j < num_sums; ++j) {
        auto const number = static_cast<double>(numbers[i + static_cast<std::int64_t>(j)]);
        sums[j] += number * number;
      }
    for (; i < end; ++i)
      sums[0] += static_cast<double>(numbers[i]) * static_cast<double>(numbers[i]);
    for (auto const part : sums)
      sum += part;
  }
};

template<class T>
void sum_squares(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& numbers,
                 std::int64_t count, runtime::Number<double> const& sum) {
  passes.add({"local_squared_norm", count * static_cast<std::int64_t>(sizeof(T)), 0});
  constexpr auto label = "orthant::pmm::local_squared_norm";
  using SumPolicy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;
  if constexpr (runs_on_host) {
    BlockOfSquares<T> const squares{numbers.data(), count};
    auto const num_blocks = (count + squares.length - 1) / squares.length;
    Kokkos::parallel_reduce(label, SumPolicy(exec, 0, num_blocks), squares, sum);
  } else {
    Kokkos::parallel_reduce(label, SumPolicy(exec, 0, count), Square<T>{numbers}, sum);
  }
}

} // namespace

template<class T>
void local_squared_norm(DefaultExec const& exec, DistMatrix<T> const& matrix, Vector<double> const& shares,
                        std::size_t i, bool counts) {
  sum_squares(exec, matrix.grid().passes(), matrix.storage(),
              counts && matrix.is_first_replica() ? matrix.block().num_stored : 0,
              runtime::number_at(shares, i));
}

template<class T>
void local_squared_norm(DefaultExec const& exec, DistVector<T> const& vector, Vector<double> const& shares,
                        std::size_t i, bool counts) {
  sum_squares(exec, vector.grid().passes(), vector.local(),
              counts && vector.is_first_replica() ? vector.range().size() : 0, runtime::number_at(shares, i));
}

template<class T>
void local_squared_norm(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& numbers,
                        Vector<double> const& shares, std::size_t i, bool counts) {
  sum_squares(exec, passes, numbers, counts ? static_cast<std::int64_t>(numbers.extent(0)) : 0,
              runtime::number_at(shares, i));
}

void sum_over_group(DefaultExec const& exec, ProcessGrid const& grid, Vector<double> const& shares,
                    AxisSet others) {
  runtime::all_reduce(exec, grid.over(parameter_axes(grid.shape()).with(others)), shares);
  if (grid.size(Axis::pipe) > 1) runtime::all_reduce(exec, grid.over(Axis::pipe), shares);
}

void plan_squared_norms(StepPlan& step, std::vector<std::int64_t> const& counts, AxisSet others) {
  for (auto const count : counts)
    step.add_pass({"local_squared_norm", step.scalar_bytes(count), 0});
  for (auto const axes : {parameter_axes(step.shape()).with(others), AxisSet{Axis::pipe}})
    step.add_call(runtime::Operation::all_reduce, axes,
                  std::ssize(counts) * static_cast<std::int64_t>(sizeof(double)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void local_squared_norm(DefaultExec const&, DistMatrix<T> const&, Vector<double> const&,          \
                                   std::size_t, bool);                                                       \
  template void local_squared_norm(DefaultExec const&, DistVector<T> const&, Vector<double> const&,          \
                                   std::size_t, bool);                                                       \
  template void local_squared_norm(DefaultExec const&, runtime::PassLedger&, Vector<T> const&,               \
                                   Vector<double> const&, std::size_t, bool);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
