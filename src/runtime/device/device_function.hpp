#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Marks a function that kernels call as well as the host. The same as KOKKOS_INLINE_FUNCTION, without
// Kokkos's headers, so that files of plain host code can share the arithmetic.

#if defined(__CUDACC__) || defined(__HIPCC__)
#define ORTHANT_FUNCTION __host__ __device__ inline
#else
#define ORTHANT_FUNCTION inline
#endif
