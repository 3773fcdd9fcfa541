// SPDX-License-Identifier: Apache-2.0
#include "pmm/token_rows/feed_forward.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/token_rows/feed_forward_kernels.hpp"
#include "pmm/token_rows/token_kernels_host.hpp"
#include "runtime/error.hpp"

namespace orthant::pmm {

using runtime::array_bytes;
using runtime::DefaultExec;
using runtime::LocalPass;
using runtime::Matrix;
using runtime::PassLedger;

namespace {

/// `num_read` arrays of `bytes` are read and `num_written` written.
LocalPass pass_of(std::string_view name, std::int64_t bytes, std::int64_t num_read,
                  std::int64_t num_written) {
  return {name, num_read * bytes, num_written * bytes};
}
LocalPass gelu_pass(std::int64_t bytes) {
  return pass_of("gelu", bytes, 1, 1);
}
LocalPass gelu_backward_pass(std::int64_t bytes) {
  return pass_of("gelu_backward", bytes, 2, 1);
}
LocalPass swiglu_pass(std::int64_t bytes) {
  return pass_of("swiglu", bytes, 2, 1);
}
LocalPass swiglu_backward_pass(std::int64_t bytes) {
  return pass_of("swiglu_backward", bytes, 3, 2);
}

template<class T>
void require_alike(char const* what, Matrix<T> const& x, Matrix<T> const& y) {
  ORTHANT_REQUIRE(x.extent(0) == y.extent(0) && x.extent(1) == y.extent(1), what, ": arrays of ", x.extent(0),
                  " x ", x.extent(1), " and ", y.extent(0), " x ", y.extent(1), " should be equal in size");
}

template<class T>
void require_pairs(char const* what, Matrix<T> const& z, Matrix<T> const& y) {
  ORTHANT_REQUIRE(z.extent(0) == y.extent(0) && z.extent(1) == 2 * y.extent(1), what, ": ", z.extent(0),
                  " x ", z.extent(1), " numbers are no pairs for ", y.extent(0), " x ", y.extent(1));
}

/// On a device `body` for every number; on a host the kernel of the task, in parts.
template<class T, class Body>
void run(DefaultExec const& exec, char const* label, std::int64_t count,
         void (*host_tokens::HostTokenKernels<T>::*kernel)(host_tokens::HostFeedForward<T> const&,
                                                           std::int64_t, std::int64_t),
         host_tokens::HostFeedForward<T> const& task, Body const& body) {
  if constexpr (runs_on_host)
    for_each_part(exec, label, count,
                  [task, function = host_tokens::best_token_kernels<T>().*kernel](
                      std::int64_t begin, std::int64_t end) { function(task, begin, end); });
  else
    Kokkos::parallel_for(label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count), body);
}

} // namespace

template<class T>
void gelu(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& y) {
  require_alike("gelu", z, y);
  passes.add(gelu_pass(array_bytes(z)));
  run<T>(exec, "orthant::pmm::gelu", static_cast<std::int64_t>(z.size()),
         &host_tokens::HostTokenKernels<T>::gelu, {z.data(), nullptr, y.data()},
         detail::GeluElement<T>{z.data(), y.data()});
}

template<class T>
void gelu_backward(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& dy,
                   Matrix<T> const& dz) {
  require_alike("gelu_backward", z, dy);
  require_alike("gelu_backward", z, dz);
  passes.add(gelu_backward_pass(array_bytes(z)));
  run<T>(exec, "orthant::pmm::gelu_backward", static_cast<std::int64_t>(z.size()),
         &host_tokens::HostTokenKernels<T>::gelu_backward, {z.data(), dy.data(), dz.data()},
         detail::GeluBackwardElement<T>{z.data(), dy.data(), dz.data()});
}

template<class T>
void swiglu(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& y) {
  require_pairs("swiglu", z, y);
  passes.add(swiglu_pass(array_bytes(y)));
  run<T>(exec, "orthant::pmm::swiglu", static_cast<std::int64_t>(y.size()),
         &host_tokens::HostTokenKernels<T>::swiglu, {z.data(), nullptr, y.data()},
         detail::SwigluElement<T>{z.data(), y.data()});
}

template<class T>
void swiglu_backward(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& dy,
                     Matrix<T> const& dz) {
  require_pairs("swiglu_backward", z, dy);
  require_alike("swiglu_backward", z, dz);
  passes.add(swiglu_backward_pass(array_bytes(dy)));
  run<T>(exec, "orthant::pmm::swiglu_backward", static_cast<std::int64_t>(dy.size()),
         &host_tokens::HostTokenKernels<T>::swiglu_backward, {z.data(), dy.data(), dz.data()},
         detail::SwigluBackwardElement<T>{z.data(), dy.data(), dz.data()});
}

void plan_gelu(StepPlan& step, std::int64_t num_outputs) {
  step.add_pass(gelu_pass(step.scalar_bytes(num_outputs)));
}
void plan_gelu_backward(StepPlan& step, std::int64_t num_outputs) {
  step.add_pass(gelu_backward_pass(step.scalar_bytes(num_outputs)));
}
void plan_swiglu(StepPlan& step, std::int64_t num_outputs) {
  step.add_pass(swiglu_pass(step.scalar_bytes(num_outputs)));
}
void plan_swiglu_backward(StepPlan& step, std::int64_t num_outputs) {
  step.add_pass(swiglu_backward_pass(step.scalar_bytes(num_outputs)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void gelu(DefaultExec const&, PassLedger&, Matrix<T> const&, Matrix<T> const&);                   \
  template void gelu_backward(DefaultExec const&, PassLedger&, Matrix<T> const&, Matrix<T> const&,           \
                              Matrix<T> const&);                                                             \
  template void swiglu(DefaultExec const&, PassLedger&, Matrix<T> const&, Matrix<T> const&);                 \
  template void swiglu_backward(DefaultExec const&, PassLedger&, Matrix<T> const&, Matrix<T> const&,         \
                                Matrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
