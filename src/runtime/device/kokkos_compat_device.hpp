#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The rest of kokkos_compat.hpp, for the few sources that make queues, pin memory or raise to a power: math
// functions in namespace Kokkos (3.7), the name of pinned host memory (4.0).

#include <Kokkos_Core.hpp>
#include <utility>

namespace orthant::runtime::compat {

/// An instance whose work goes to that queue (cudaStream_t, hipStream_t), which must outlive it; the default
/// instance where Exec has no queues.
template<class Exec>
Exec instance_on([[maybe_unused]] void* stream) {
  if constexpr (requires(Exec const& exec) { exec.cuda_stream(); })
    return Exec(static_cast<decltype(std::declval<Exec const&>().cuda_stream())>(stream));
  else if constexpr (requires(Exec const& exec) { exec.hip_stream(); })
    return Exec(static_cast<decltype(std::declval<Exec const&>().hip_stream())>(stream));
  else
    return Exec();
}

/// Host memory that a device copies to and from by itself, without a detour through the driver's; plain host
/// memory where no device backend is built in.
#if defined(KOKKOS_HAS_SHARED_HOST_PINNED_SPACE)
using PinnedSpace = Kokkos::SharedHostPinnedSpace;
#elif defined(KOKKOS_ENABLE_CUDA)
using PinnedSpace = Kokkos::CudaHostPinnedSpace;
#elif defined(KOKKOS_ENABLE_HIP)
using PinnedSpace = Kokkos::Experimental::HIPHostPinnedSpace;
#else
using PinnedSpace = Kokkos::HostSpace;
#endif

/// Whether this rank's device has matrix units for bf16 (NVIDIA: compute capability 8.0 or newer); true on a host, of
/// every device of HIP that Kokkos knows, and before Kokkos is started (a plan is made for another machine).
template<class Exec = Kokkos::DefaultExecutionSpace>
bool device_multiplies_bf16() {
  if constexpr (requires(Exec const& exec) { exec.cuda_device_prop(); })
    return !Kokkos::is_initialized() || Exec().cuda_device_prop().major >= 8;
  else
    return true;
}

#if KOKKOS_VERSION >= 30700
using Kokkos::cos;
using Kokkos::pow;
#else
using Kokkos::Experimental::cos;
using Kokkos::Experimental::pow;
#endif

} // namespace orthant::runtime::compat
