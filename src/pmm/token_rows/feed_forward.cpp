// SPDX-License-Identifier: Apache-2.0
#include "pmm/token_rows/feed_forward.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/token_rows/feed_forward_kernels.hpp"
#include "pmm/token_rows/token_kernels_host.hpp"
#include "runtime/error.hpp"

namespace orthant::pmm {

using runtime::DefaultExec;
using runtime::LocalPass;
using runtime::Matrix;
using runtime::PassLedger;

namespace {

/// `num_read` arrays of `num_outputs` numbers are read and `num_written` written.
LocalPass pass_of(std::string_view name, std::int64_t num_outputs, std::int64_t scalar_bytes,
                  std::int64_t num_read, std::int64_t num_written) {
  auto const bytes = num_outputs * scalar_bytes;
  return {.name = name,
          .bytes_read = num_read * bytes,
          .bytes_written = num_written * bytes,
          .exponentials = num_outputs};
}
LocalPass gelu_pass(std::int64_t num_outputs, std::int64_t scalar_bytes) {
  return pass_of("gelu", num_outputs, scalar_bytes, 1, 1);
}
LocalPass gelu_backward_pass(std::int64_t num_outputs, std::int64_t scalar_bytes) {
  return pass_of("gelu_backward", num_outputs, scalar_bytes, 2, 1);
}
LocalPass swiglu_pass(std::int64_t num_outputs, std::int64_t scalar_bytes) {
  return pass_of("swiglu", num_outputs, scalar_bytes, 2, 1);
}
LocalPass swiglu_backward_pass(std::int64_t num_outputs, std::int64_t scalar_bytes) {
  return pass_of("swiglu_backward", num_outputs, scalar_bytes, 3, 2);
}

template<class T>
std::int64_t count_of(Matrix<T> const& x) {
  return static_cast<std::int64_t>(x.size());
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
  passes.add(gelu_pass(count_of(z), sizeof(T)));
  run<T>(exec, "orthant::pmm::gelu", count_of(z), &host_tokens::HostTokenKernels<T>::gelu,
         {z.data(), nullptr, y.data()}, detail::GeluElement<T>{z.data(), y.data()});
}

template<class T>
void gelu_backward(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& dy,
                   Matrix<T> const& dz) {
  require_alike("gelu_backward", z, dy);
  require_alike("gelu_backward", z, dz);
  passes.add(gelu_backward_pass(count_of(z), sizeof(T)));
  run<T>(exec, "orthant::pmm::gelu_backward", count_of(z), &host_tokens::HostTokenKernels<T>::gelu_backward,
         {z.data(), dy.data(), dz.data()}, detail::GeluBackwardElement<T>{z.data(), dy.data(), dz.data()});
}

template<class T>
void swiglu(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& y) {
  require_pairs("swiglu", z, y);
  passes.add(swiglu_pass(count_of(y), sizeof(T)));
  run<T>(exec, "orthant::pmm::swiglu", count_of(y), &host_tokens::HostTokenKernels<T>::swiglu,
         {z.data(), nullptr, y.data()}, detail::SwigluElement<T>{z.data(), y.data()});
}

template<class T>
void swiglu_backward(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& dy,
                     Matrix<T> const& dz) {
  require_pairs("swiglu_backward", z, dy);
  require_alike("swiglu_backward", z, dz);
  passes.add(swiglu_backward_pass(count_of(dy), sizeof(T)));
  run<T>(exec, "orthant::pmm::swiglu_backward", count_of(dy),
         &host_tokens::HostTokenKernels<T>::swiglu_backward, {z.data(), dy.data(), dz.data()},
         detail::SwigluBackwardElement<T>{z.data(), dy.data(), dz.data()});
}

void plan_gelu(StepPlan& step, std::int64_t num_outputs) {
  step.add_pass(gelu_pass(num_outputs, step.scalar_bytes(1)));
}
void plan_gelu_backward(StepPlan& step, std::int64_t num_outputs) {
  step.add_pass(gelu_backward_pass(num_outputs, step.scalar_bytes(1)));
}
void plan_swiglu(StepPlan& step, std::int64_t num_outputs) {
  step.add_pass(swiglu_pass(num_outputs, step.scalar_bytes(1)));
}
void plan_swiglu_backward(StepPlan& step, std::int64_t num_outputs) {
  step.add_pass(swiglu_backward_pass(num_outputs, step.scalar_bytes(1)));
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
