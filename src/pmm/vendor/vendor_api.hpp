#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Common names for functions of the CUDA and HIP runtimes and sparse libraries, and checks of their return codes. hipSPARSE has the same
// functions as cuSPARSE with another prefix. Include only in vendor_*.cpp.

#include "runtime/throw_internal.hpp"

#include <string>

#if defined(ORTHANT_ENABLE_HIP)
#include <hip/hip_runtime_api.h>
#include <hipsparse/hipsparse.h>
#define ORTHANT_VENDOR_RUNTIME(name) hip##name
#define ORTHANT_VENDOR_SPARSE(name) hipsparse##name
#define ORTHANT_VENDOR_SPARSE_CONSTANT(name) HIPSPARSE_##name
#else
#include <cuda_runtime_api.h>
#include <cusparse.h>
#define ORTHANT_VENDOR_RUNTIME(name) cuda##name
#define ORTHANT_VENDOR_SPARSE(name) cusparse##name
#define ORTHANT_VENDOR_SPARSE_CONSTANT(name) CUSPARSE_##name
#endif

namespace orthant::pmm::vendor {

#if defined(ORTHANT_ENABLE_HIP)
using Stream = hipStream_t;
using NumberType = hipDataType;
inline constexpr auto float32 = HIP_R_32F;
inline constexpr auto float64 = HIP_R_64F;
#else
using Stream = cudaStream_t;
using NumberType = cudaDataType;
inline constexpr auto float32 = CUDA_R_32F;
inline constexpr auto float64 = CUDA_R_64F;
#endif

template<class T>
inline constexpr NumberType number_type = sizeof(T) == sizeof(float) ? float32 : float64;

/// Throws Error, which names the call and the number of the status, unless `code` is `success`. The libraries' texts for a status
/// depend on the version. Also clears the last error of the runtime, so that a later call does not report it as its own.
template<class Code>
void check(Code code, Code success, char const* call,
           std::source_location where = std::source_location::current()) {
  if (code == success) return;
  static_cast<void>(ORTHANT_VENDOR_RUNTIME(GetLastError)());
  runtime::throw_internal(
      std::string(call) + " failed: status " + std::to_string(static_cast<long long>(code)), where);
}

} // namespace orthant::pmm::vendor

/// ORTHANT_CHECK_RUNTIME(Malloc(&memory, num_bytes)) calls cudaMalloc or hipMalloc and checks its code.
#define ORTHANT_CHECK_RUNTIME(call)                                                                          \
  ::orthant::pmm::vendor::check(ORTHANT_VENDOR_RUNTIME(call), ORTHANT_VENDOR_RUNTIME(Success),               \
                                "device runtime: " #call)
/// ORTHANT_CHECK_SPARSE(Create(&handle)) calls cusparseCreate or hipsparseCreate and checks its code.
#define ORTHANT_CHECK_SPARSE(call)                                                                           \
  ::orthant::pmm::vendor::check(ORTHANT_VENDOR_SPARSE(call), ORTHANT_VENDOR_SPARSE_CONSTANT(STATUS_SUCCESS), \
                                "sparse library: " #call)
