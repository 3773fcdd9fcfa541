// SPDX-License-Identifier: Apache-2.0
#include "pmm/rows/elu.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/row_kernels_host.hpp"
#include "runtime/device/kokkos_compat.hpp"
#include "runtime/error.hpp"

namespace orthant::pmm {

using runtime::DefaultExec;
using runtime::LocalPass;
using runtime::Matrix;
using runtime::PassLedger;

namespace {

using Policy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

LocalPass elu_pass(std::int64_t count, std::int64_t scalar_bytes) {
  auto const bytes = count * scalar_bytes;
  return {.name = "elu", .bytes_read = bytes, .bytes_written = bytes, .exponentials = count};
}
LocalPass elu_backward_pass(std::int64_t count, std::int64_t scalar_bytes) {
  auto const bytes = count * scalar_bytes;
  return {.name = "elu_backward", .bytes_read = 2 * bytes, .bytes_written = bytes, .exponentials = count};
}

template<class T>
struct HostPart {
  void (*kernel)(host_rows::HostElu<T> const&, std::int64_t, std::int64_t);
  host_rows::HostElu<T> task;
  void operator()(std::int64_t begin, std::int64_t end) const { kernel(task, begin, end); }
};

template<class T>
void require_elu_sizes(Matrix<T> const& x, Matrix<T> const& y) {
  ORTHANT_REQUIRE(x.extent(0) == y.extent(0) && x.extent(1) == y.extent(1), "ELU: arrays of ", x.extent(0),
                  " x ", x.extent(1), " and ", y.extent(0), " x ", y.extent(1), " should be equal in size");
}

} // namespace

template<class T>
void elu(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& y) {
  require_elu_sizes(z, y);
  passes.add(elu_pass(static_cast<std::int64_t>(z.size()), sizeof(T)));
  T const* const from = z.data();
  T* const to = y.data();
  constexpr auto label = "orthant::pmm::elu";
  auto const count = static_cast<std::int64_t>(z.size());
  if constexpr (runs_on_host)
    return for_each_part(exec, label, count,
                         HostPart<T>{host_rows::best_row_kernels<T>().elu, {from, nullptr, to}});
  Kokkos::parallel_for(
      label, Policy(exec, 0, count), KOKKOS_LAMBDA(std::int64_t i) {
        to[i] = from[i] > T{0} ? from[i] : runtime::compat::exp(from[i]) - T{1};
      });
}

template<class T>
void elu_backward(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& dy,
                  Matrix<T> const& dz) {
  require_elu_sizes(z, dy);
  require_elu_sizes(z, dz);
  passes.add(elu_backward_pass(static_cast<std::int64_t>(z.size()), sizeof(T)));
  T const* const from = z.data();
  T const* const gradient = dy.data();
  T* const to = dz.data();
  constexpr auto label = "orthant::pmm::elu_backward";
  auto const count = static_cast<std::int64_t>(z.size());
  if constexpr (runs_on_host)
    return for_each_part(exec, label, count,
                         HostPart<T>{host_rows::best_row_kernels<T>().elu_backward, {from, gradient, to}});
  Kokkos::parallel_for(
      label, Policy(exec, 0, count), KOKKOS_LAMBDA(std::int64_t i) {
        to[i] = from[i] > T{0} ? gradient[i] : gradient[i] * runtime::compat::exp(from[i]);
      });
}

void plan_elu(StepPlan& step, std::int64_t count) {
  step.add_pass(elu_pass(count, step.scalar_bytes(1)));
}

void plan_elu_backward(StepPlan& step, std::int64_t count) {
  step.add_pass(elu_backward_pass(count, step.scalar_bytes(1)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void elu(DefaultExec const&, PassLedger&, Matrix<T> const&, Matrix<T> const&);                    \
  template void elu_backward(DefaultExec const&, PassLedger&, Matrix<T> const&, Matrix<T> const&,            \
                             Matrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
