#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Marks a function that kernels and the host call. Same as KOKKOS_INLINE_FUNCTION, but without Kokkos's headers, so that plain host code
// can share the arithmetic.

#if defined(__CUDACC__) || defined(__HIPCC__)
#define ORTHANT_FUNCTION __host__ __device__ inline
#else
#define ORTHANT_FUNCTION inline
#endif
