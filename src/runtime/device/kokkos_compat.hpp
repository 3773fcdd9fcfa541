#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Hides the differences between Kokkos 3.4 and 5 that Orthant needs: named fences (since 3.5), math functions in namespace Kokkos (3.7),
// Profiling::ScopedRegion (4.1), and the name of pinned host memory (4.0).

#include <Kokkos_Core.hpp>
#include <string>
#include <utility>
#include <vector>

namespace orthant::runtime::compat {

template<class Exec>
void fence(Exec const& exec, [[maybe_unused]] char const* why) {
#if KOKKOS_VERSION >= 30500
  exec.fence(why);
#else
  exec.fence();
#endif
}

/// cudaStream_t or hipStream_t of a device instance; null for a host space.
template<class Exec>
void* native_stream([[maybe_unused]] Exec const& exec) {
  if constexpr (requires { exec.cuda_stream(); })
    return exec.cuda_stream();
  else if constexpr (requires { exec.hip_stream(); })
    return exec.hip_stream();
  else
    return nullptr;
}

/// Starts Kokkos. `arguments` are --kokkos-* options; `device` is the index of this rank's device (-1: Kokkos chooses).
inline void initialize(std::vector<std::string> arguments, int device) {
  std::vector<char*> pointers;
  arguments.insert(arguments.begin(), "orthant");
  for (auto& argument : arguments)
    pointers.push_back(argument.data());
  auto count = static_cast<int>(pointers.size());
  pointers.push_back(nullptr);
  std::string device_option = "--kokkos-device-id=" + std::to_string(device);
  if (device >= 0) {
    pointers.back() = device_option.data();
    pointers.push_back(nullptr);
    ++count;
  }
  Kokkos::initialize(count, pointers.data());
}

/// A profiling region that Kokkos tools see.
class Region {
 public:
  explicit Region(std::string const& name) { Kokkos::Profiling::pushRegion(name); }
  Region(Region const&) = delete;
  Region& operator=(Region const&) = delete;
  ~Region() { Kokkos::Profiling::popRegion(); }
};

#if KOKKOS_VERSION >= 30700
using Kokkos::exp;
using Kokkos::fabs;
using Kokkos::log;
using Kokkos::sqrt;
using Kokkos::tanh;
#else
using Kokkos::Experimental::exp;
using Kokkos::Experimental::fabs;
using Kokkos::Experimental::log;
using Kokkos::Experimental::sqrt;
using Kokkos::Experimental::tanh;
#endif

// For the few sources that create queues, pin memory or raise to a power.

/// An instance whose work goes to the queue `stream` (cudaStream_t, hipStream_t), which must outlive it; the default instance if Exec has
/// no queues.
template<class Exec>
Exec instance_on([[maybe_unused]] void* stream) {
  if constexpr (requires(Exec const& exec) { exec.cuda_stream(); })
    return Exec(static_cast<decltype(std::declval<Exec const&>().cuda_stream())>(stream));
  else if constexpr (requires(Exec const& exec) { exec.hip_stream(); })
    return Exec(static_cast<decltype(std::declval<Exec const&>().hip_stream())>(stream));
  else
    return Exec();
}

/// Host memory that a device reads and writes directly, without a copy by the driver; plain host memory if no device backend is built in.
#if defined(KOKKOS_HAS_SHARED_HOST_PINNED_SPACE)
using PinnedSpace = Kokkos::SharedHostPinnedSpace;
#elif defined(KOKKOS_ENABLE_CUDA)
using PinnedSpace = Kokkos::CudaHostPinnedSpace;
#elif defined(KOKKOS_ENABLE_HIP)
using PinnedSpace = Kokkos::Experimental::HIPHostPinnedSpace;
#else
using PinnedSpace = Kokkos::HostSpace;
#endif

/// True if this rank's device has matrix units for bf16 (NVIDIA: compute capability 8.0 or newer). Also true on a host, on every HIP device
/// that Kokkos supports, and before Kokkos is started (a plan may be for another machine).
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
