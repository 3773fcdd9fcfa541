#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Dense products through the vendor's library, on raw device pointers and a stream: cuBLAS
// (vendor_gemm_cuda.cpp) or hipBLAS (vendor_gemm_hip.cpp). Needs neither Kokkos nor MPI.

#include "runtime/numbers/formats.hpp"
#include "runtime/throw_internal.hpp"
#include "runtime/unique_handle.hpp"

#include <cstdint>
#include <limits>
#include <string>

namespace orthant::pmm {

// How a dense product of one rank is to be done.

enum class Transpose : std::uint8_t { no, yes };

/// What a device multiplies fp32 numbers in; sums are fp32 in each. tf32 keeps 10 bits of the mantissa, bf16
/// keeps 7: operands are rounded in memory. fp64 products are never rounded. (NVIDIA_TF32_OVERRIDE in the
/// environment overrules cuBLAS's callers: 0 forbids tf32, 1 makes fp32 tf32.)
enum class GemmMath : std::uint8_t { fp32, tf32, bf16 };

} // namespace orthant::pmm

namespace orthant::pmm::vendor {

/// A row-major operand whose rows lie `row_stride` numbers apart.
template<class T>
struct GemmOperand {
  T const* data = nullptr;
  std::int64_t row_stride = 0;
  Transpose transpose = Transpose::no;
};

/// C [m x n] := alpha op(A) [m x k] op(B) [k x n] + beta C, all row-major. Operands of 16 bits are multiplied
/// and summed in fp32; a result of 16 bits is rounded once.
template<class Operand, class Result = Operand>
struct GemmProduct {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  runtime::SumOf<Result> alpha = 1;
  GemmOperand<Operand> a;
  GemmOperand<Operand> b;
  runtime::SumOf<Result> beta = 0;
  Result* c = nullptr;
  std::int64_t c_row_stride = 0;
};

/// `size` products of one shape. The operands of each lie so many numbers behind those of the one before.
struct GemmBatch {
  std::int64_t size = 0;
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  std::int64_t c_stride = 0;
};

/// The library's handle for one stream of the device that was current when it was made, with the memory that
/// it works in: two streams must not share that, and a captured graph goes on using it. One host thread at a
/// time.
class Gemm {
 public:
  /// `stream`: cudaStream_t or hipStream_t; null is the default one. Allocates 32 MiB (CUDA). Throws Error
  /// where the library cannot start or has not this arithmetic.
  Gemm(GemmMath math, void* stream);

  /// Enqueues on the stream. Does not wait or allocate. m, n and k are positive; extents and strides below
  /// 2^31 (Error). C is not read if beta is 0. Operands: float, double, Bf16Number or Fp16Number. The result is
  /// of the same type, or float if the operands have 16 bits.
  template<class Operand, class Result>
  void multiply(GemmProduct<Operand, Result> const& product) const;
  /// The same for all products of a batch, of which `first` is the first.
  void multiply(GemmProduct<float> const& first, GemmBatch const& batch) const;
  void multiply(GemmProduct<double> const& first, GemmBatch const& batch) const;

 private:
  struct FreeMemory {
    void operator()(void* memory) const noexcept;
  };
  struct Destroy {
    void operator()(void* handle) const noexcept;
  };
  runtime::UniqueHandle<void*, nullptr, FreeMemory> workspace_; // outlives the handle
  runtime::UniqueHandle<void*, nullptr, Destroy> handle_;
  GemmMath math_;
};

/// Whether what is enqueued on `stream` becomes part of a graph instead of being run: nothing can be timed
/// then.
[[nodiscard]] bool is_capturing(void* stream);

// A row-major product as the column-major libraries see it. A row-major matrix, read column by column, is its
// transpose; so the product's operands change places and keep their transposition:
//
//   C^T [n x m] := alpha op(B)^T op(A)^T + beta C^T

/// The integers of the library's call: rows n and columns m of C^T.
struct ColumnMajorExtents {
  int rows;
  int columns;
  int inner;
  int leading_of_b; // the library's first operand
  int leading_of_a; // its second
  int leading_of_c;
};

/// Throws Error where it is not positive or needs more than 32 bits.
inline int as_library_int(std::int64_t number) {
  if (number < 1 || number > std::numeric_limits<int>::max())
    runtime::throw_internal("a dense product's extent, stride or number is " + std::to_string(number),
                            std::source_location::current());
  return static_cast<int>(number);
}

/// Throws Error as as_library_int().
template<class Operand, class Result>
ColumnMajorExtents column_major_extents(GemmProduct<Operand, Result> const& product) {
  return {as_library_int(product.n),
          as_library_int(product.m),
          as_library_int(product.k),
          as_library_int(product.b.row_stride),
          as_library_int(product.a.row_stride),
          as_library_int(product.c_row_stride)};
}

} // namespace orthant::pmm::vendor
