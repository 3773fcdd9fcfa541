#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One name for each function that the CUDA and HIP runtimes name differently. Only sources of device backends include this header. It also
// compiles without Kokkos: sources that use Kokkos must include Kokkos_Macros.hpp first.

#include "runtime/throw_internal.hpp"

#include <fmt/format.h>

#if defined(ORTHANT_ENABLE_HIP) || defined(KOKKOS_ENABLE_HIP)
#include <hip/hip_runtime_api.h>
#define ORTHANT_DEVICE_API(name) hip##name
#else
#include <cuda_runtime_api.h>
#define ORTHANT_DEVICE_API(name) cuda##name
#endif

namespace orthant::runtime::device {

using NativeStream = ORTHANT_DEVICE_API(Stream_t);
using NativeEvent = ORTHANT_DEVICE_API(Event_t);
inline constexpr auto success = ORTHANT_DEVICE_API(Success);
#if defined(ORTHANT_ENABLE_HIP) || defined(KOKKOS_ENABLE_HIP)
using PointerAttributes = hipPointerAttribute_t;
inline constexpr auto host_mapped = hipHostMallocMapped;
#else
using PointerAttributes = cudaPointerAttributes;
inline constexpr auto host_mapped = cudaHostAllocMapped;
#endif

template<class Code>
void check(Code code, char const* call, std::source_location where = std::source_location::current()) {
  if (code != success)
    throw_internal(fmt::format("{} failed: {}", call, ORTHANT_DEVICE_API(GetErrorString)(code)), where);
}

} // namespace orthant::runtime::device

/// ORTHANT_DEVICE(Malloc(&memory, num_bytes)) calls cudaMalloc or hipMalloc. Throws an Error that names the call if it fails.
#define ORTHANT_DEVICE(call) ::orthant::runtime::device::check(ORTHANT_DEVICE_API(call), #call)
