#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Dense products with a tall operand, on host processors: raw pointers, row-major, compiled once per instruction set. Matrices of a graph
// have far more rows than columns, so the other operand stays in the L2 cache. The tall operand is read without packing:
//
//   C[rows,:]  := A[rows,:] B  (+ C[rows,:])            multiply_rows()   B is packed once, in panels of a few vectors
//   S          := S + sum over t of A[t,:]^T B[t,:]     add_terms()       128 terms at a time, whose panels of B are packed
//
// A tile of C that fits in the registers is summed there. Meanwhile, prefetches load the numbers of the next tiles: a product of 128
// columns needs 8 GB/s from memory, at which no waiting was measured.
//
// A sum adds its terms in order, with one rounding each (fused multiply-add). S first sums 128 terms to a partial sum:
//
//   |error|  <=  (k + 1) eps sum_l |a_il| |b_lj|   of C,    (128 + k / 128) eps sum_l |a_il| |b_lj|   of S
//
// All instruction sets give the same bits. Source of the blocking: Goto & van de Geijn, "Anatomy of high-performance matrix
// multiplication" (ACM TOMS 34, 2008).

#include "runtime/instruction_sets.hpp"

#include <cstdint>
#include <vector>

namespace orthant::pmm::host_gemm {

/// A matrix whose rows begin `stride` numbers apart.
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
  bool adds; // if true, C := C + A B
};

struct LongSum {
  Rows a;      // terms x m
  Rows b;      // terms x n
  float* sums; // padded(m) x padded(n)
  std::int64_t m, n;
};

struct TallKernels {
  char const* vectors; // "AVX-512"
  /// Packs op(B), k x n, for multiply_rows(). `packed`: k x padded(n) numbers, aligned to a cache line.
  void (*pack)(Rows b, bool is_transposed, std::int64_t n, std::int64_t k, float* packed);
  /// Computes rows [begin, end) of C.
  void (*multiply_rows)(TallProduct const&, std::int64_t begin, std::int64_t end);
  /// Adds terms [begin, end) to the sums, which must be zero at first. `scratch`: term_scratch numbers. Both must begin at a cache line.
  void (*add_terms)(LongSum const&, std::int64_t begin, std::int64_t end, float* scratch);
};

/// Padded number of columns of packed operands and of sums, and of rows of sums.
[[nodiscard]] constexpr std::int64_t padded(std::int64_t count) {
  return (count + 15) / 16 * 16;
}

inline constexpr std::int64_t terms_per_block = 128;
inline constexpr std::int64_t term_scratch =
    terms_per_block * (48 + 8); // a panel of B, the last columns of A

/// Kernels of AVX2 or AVX-512.
template<runtime::InstructionSet set>
[[nodiscard]] TallKernels tall_kernels();

/// Kernels that this processor supports, the widest vectors last. Empty on processors other than x86-64.
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
