#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One name for what CUDA and HIP, NCCL and RCCL call differently. Included by device backends only.

#if defined(ORTHANT_ENABLE_HIP)
#include <hip/hip_runtime_api.h>
#include <rccl/rccl.h>
#define ORTHANT_DEVICE_API(name) hip##name
#else
#include <cuda_runtime_api.h>
#include <nccl.h>
#define ORTHANT_DEVICE_API(name) cuda##name
#endif

namespace orthant::runtime::device {

#if defined(ORTHANT_ENABLE_HIP)
using NativeStream = hipStream_t;
inline constexpr auto success = hipSuccess;
inline constexpr auto host_mapped = hipHostMallocMapped;
#else
using NativeStream = cudaStream_t;
inline constexpr auto success = cudaSuccess;
inline constexpr auto host_mapped = cudaHostAllocMapped;
#endif

} // namespace orthant::runtime::device
