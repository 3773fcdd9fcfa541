// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <immintrin.h>

namespace orthant::pmm::host_gemm {
namespace {

typedef float Vector __attribute__((vector_size(64), may_alias));
constexpr std::int64_t num_lanes = 16;

inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>((1U << count) - 1);
}
inline Vector load_first(float const* from, std::int64_t count) {
  return reinterpret_cast<Vector>(_mm512_maskz_loadu_ps(first_lanes(count), from));
}
inline void store_first(float* to, Vector const& x, std::int64_t count) {
  _mm512_mask_storeu_ps(to, first_lanes(count), reinterpret_cast<__m512>(x));
}

// 32 registers.
constexpr int most_vectors = 4;
constexpr int rows_of_tile(int vectors) {
  return vectors == 4 ? 6 : vectors == 3 ? 8 : 12;
}
constexpr int rows_of_sums = 8;
constexpr int most_vectors_of_sums = 3;

} // namespace
} // namespace orthant::pmm::host_gemm

#include "pmm/tall_gemm/tall_gemm_host_kernel.inc"

namespace orthant::pmm::host_gemm {

TallKernels tall_kernels_avx512() {
  return {"AVX-512", pack, multiply_rows, add_terms};
}

} // namespace orthant::pmm::host_gemm
