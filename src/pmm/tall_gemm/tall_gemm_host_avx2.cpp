// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <immintrin.h>

namespace orthant::pmm::host_gemm {
namespace {

typedef float Vector __attribute__((vector_size(32), may_alias));
constexpr std::int64_t num_lanes = 8;

inline __m256i first_lanes(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vector load_first(float const* from, std::int64_t count) {
  return reinterpret_cast<Vector>(_mm256_maskload_ps(from, first_lanes(count)));
}
inline void store_first(float* to, Vector const& x, std::int64_t count) {
  _mm256_maskstore_ps(to, first_lanes(count), reinterpret_cast<__m256>(x));
}

// 16 registers.
constexpr int most_vectors = 2;
constexpr int rows_of_tile(int vectors) {
  return vectors == 2 ? 6 : 12;
}
constexpr int rows_of_sums = 4;
constexpr int most_vectors_of_sums = 3;

} // namespace
} // namespace orthant::pmm::host_gemm

#include "pmm/tall_gemm/tall_gemm_host_kernel.inc"

namespace orthant::pmm::host_gemm {

TallKernels tall_kernels_avx2() {
  return {"AVX2", pack, multiply_rows, add_terms};
}

} // namespace orthant::pmm::host_gemm
