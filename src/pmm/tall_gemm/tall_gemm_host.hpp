#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Dense products of which one operand is tall, on host processors: raw pointers, row-major, compiled once for each
// instruction set. A graph's matrices have far more rows than columns, so the other operand stays in the second cache
// level, and a tall one is read where it lies:
//
//   C[rows,:]  := A[rows,:] B  (+ C[rows,:])            multiply_rows()   B packed once, in panels of a few vectors
//   S          := S + sum over t of A[t,:]^T B[t,:]     add_terms()       128 terms at a time, B's panels of them packed
//
// A tile of C, as large as the registers hold, is summed up in registers. While they are summed, the numbers that the next
// tiles read come closer (prefetches): a product of 128 columns asks memory for 8 GB/s, at which no wait is seen.
//
// A sum adds its terms in order, with one rounding each (fused multiply-add), for S 128 of them to a partial sum:
//
//   |error|  <=  (k + 1) eps sum_l |a_il| |b_lj|   of C,    (128 + k / 128) eps sum_l |a_il| |b_lj|   of S
//
// All instruction sets give the same bits.
// The arrangement is that of Goto & van de Geijn, "Anatomy of high-performance matrix multiplication" (ACM TOMS 34, 2008).

#include "runtime/instruction_sets.hpp"

#include <cstdint>
#include <vector>

namespace orthant::pmm::host_gemm {

/// A matrix whose rows are `stride` numbers apart.
struct Rows {
  float* data = nullptr;
  std::int64_t stride = 0;

  [[nodiscard]] Rows from(std::int64_t row) const { return {data + row * stride, stride}; }
};

struct TallProduct {
  Rows a;              // any number of rows x k
  float const* packed; // B, k x n, from pack()
  Rows c;
  std::int64_t n, k;
  bool adds; // to what is there
};

struct LongSum {
  Rows a;      // terms x m
  Rows b;      // terms x n
  float* sums; // padded(m) x padded(n)
  std::int64_t m, n;
};

struct TallKernels {
  char const* vectors; // "AVX-512"
  /// op(B), k x n, as multiply_rows() reads it; to `packed`, k x padded(n) numbers from a cache line on.
  void (*pack)(Rows b, bool is_transposed, std::int64_t n, std::int64_t k, float* packed);
  /// Rows [begin, end) of C.
  void (*multiply_rows)(TallProduct const&, std::int64_t begin, std::int64_t end);
  /// Terms [begin, end). `scratch`: term_scratch numbers from a cache line on; so are the sums, which begin as zeros.
  void (*add_terms)(LongSum const&, std::int64_t begin, std::int64_t end, float* scratch);
};

/// Columns of packed operands and of sums, and rows of sums.
[[nodiscard]] constexpr std::int64_t padded(std::int64_t count) {
  return (count + 15) / 16 * 16;
}

inline constexpr std::int64_t terms_per_block = 128;
inline constexpr std::int64_t term_scratch =
    terms_per_block * (48 + 8); // a panel of B, the last columns of A

/// Those of AVX2 or AVX-512.
template<runtime::InstructionSet set>
[[nodiscard]] TallKernels tall_kernels();

/// Those that this processor runs, the widest vectors last. Processors other than x86-64 have none so far.
[[nodiscard]] inline std::vector<TallKernels> supported_tall_kernels() {
  std::vector<TallKernels> all;
#if defined(__x86_64__)
  using runtime::InstructionSet;
  if (runtime::has_instructions(InstructionSet::avx2)) all.push_back(tall_kernels<InstructionSet::avx2>());
  if (runtime::has_instructions(InstructionSet::avx512))
    all.push_back(tall_kernels<InstructionSet::avx512>());
#endif
  return all;
}

} // namespace orthant::pmm::host_gemm
