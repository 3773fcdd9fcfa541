// SPDX-License-Identifier: Apache-2.0
#include "pmm/rows/activations.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/normal.hpp"
#include "pmm/kernels/row_kernels_host.hpp"
#include "runtime/device/kokkos_compat.hpp"
#include "runtime/error.hpp"

namespace orthant::pmm {

using runtime::DefaultExec;
using runtime::LocalPass;
using runtime::Matrix;
using runtime::PassLedger;
using runtime::SumOf;

namespace {

/// The functions of a device.
struct DeviceMath {
  template<class T>
  KOKKOS_FUNCTION static T exponential(T z) {
    return runtime::compat::exp(z);
  }
  template<class T>
  KOKKOS_FUNCTION static T hyperbolic_tangent(T z) {
    return runtime::compat::tanh(z);
  }
  template<class T>
  KOKKOS_FUNCTION static detail::Normal<T> normal_at(T z) {
    return detail::Normal<T>(z);
  }
};

enum class Way : std::uint8_t { forward, backward };

std::string_view label_of(Activation f, Way way) {
  return way == Way::forward ? facts_of(f).label : facts_of(f).backward_label;
}

LocalPass pass_of(Activation f, Way way, std::int64_t count, std::int64_t number_bytes) {
  auto const bytes = count * number_bytes;
  return {.name = without_namespace(label_of(f, way)),
          .bytes_read = (way == Way::backward ? 2 : 1) * bytes,
          .bytes_written = bytes,
          .exponentials = count * facts_of(f).num_exponentials};
}

template<class T, class F>
struct ApplyFunction {
  T const* z;
  T* to;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { to[i] = T(F::value(static_cast<SumOf<T>>(z[i]))); }
};

template<class T, class F>
struct ApplyDerivative {
  T const* z;
  T* gradient;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    gradient[i] = T(gradient[i] * F::derivative(static_cast<SumOf<T>>(z[i])));
  }
};

template<class T>
void run(DefaultExec const& exec, Way way, std::int64_t count, host_rows::HostFunction<T> const& task) {
  char const* const label = label_of(task.kind, way).data();
  if constexpr (runs_on_host) {
    auto const& kernels = host_rows::best_row_kernels<T>();
    auto const kernel = way == Way::forward ? kernels.apply_function : kernels.apply_derivative;
    for_each_part(exec, label, count,
                  [=](std::int64_t begin, std::int64_t end) { kernel(task, begin, end); });
  } else {
    Kokkos::RangePolicy<DefaultExec, std::int64_t> const elements(exec, 0, count);
    with_activation<DeviceMath>(task.kind, [&]<class F>(F) {
      if (way == Way::forward)
        Kokkos::parallel_for(label, elements, ApplyFunction<T, F>{task.z, task.to});
      else
        Kokkos::parallel_for(label, elements, ApplyDerivative<T, F>{task.z, task.to});
    });
  }
}

template<class T>
void require_equal_sizes(Matrix<T> const& x, Matrix<T> const& y) {
  ORTHANT_REQUIRE(x.extent(0) == y.extent(0) && x.extent(1) == y.extent(1), "activation: arrays of ",
                  x.extent(0), " x ", x.extent(1), " and ", y.extent(0), " x ", y.extent(1),
                  " should be equal in size");
}

} // namespace

template<class T>
void activate(DefaultExec const& exec, PassLedger& passes, Activation f, Matrix<T> const& z,
              Matrix<T> const& y) {
  require_equal_sizes(z, y);
  auto const count = static_cast<std::int64_t>(z.size());
  passes.add(pass_of(f, Way::forward, count, sizeof(T)));
  run<T>(exec, Way::forward, count, {f, z.data(), y.data()});
}

template<class T>
void activate_backward(DefaultExec const& exec, PassLedger& passes, Activation f, Matrix<T> const& z,
                       Matrix<T> const& gradient) {
  require_equal_sizes(z, gradient);
  auto const count = static_cast<std::int64_t>(z.size());
  passes.add(pass_of(f, Way::backward, count, sizeof(T)));
  run<T>(exec, Way::backward, count, {f, z.data(), gradient.data()});
}

void plan_activate(StepPlan& step, Activation f, std::int64_t count, Wire format) {
  step.add_pass(pass_of(f, Way::forward, count, step.wire_bytes(1, format)));
}

void plan_activate_backward(StepPlan& step, Activation f, std::int64_t count, Wire format) {
  step.add_pass(pass_of(f, Way::backward, count, step.wire_bytes(1, format)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void activate(DefaultExec const&, PassLedger&, Activation, Matrix<T> const&, Matrix<T> const&);   \
  template void activate_backward(DefaultExec const&, PassLedger&, Activation, Matrix<T> const&,             \
                                  Matrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
