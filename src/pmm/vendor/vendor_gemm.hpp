#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Dense products with the vendor's library, on raw device pointers and a stream: cuBLAS
// (vendor_gemm_cuda.cpp) or hipBLAS (vendor_gemm_hip.cpp). Needs neither Kokkos nor MPI.

#include "runtime/numbers/formats.hpp"
#include "runtime/throw_internal.hpp"
#include "runtime/unique_handle.hpp"

#include <cstdint>
#include <limits>
#include <string>

namespace orthant::pmm {

enum class Transpose : std::uint8_t { no, yes };

/// Format in which a device multiplies fp32 numbers; sums are always fp32. tf32 keeps 10 bits of the mantissa and bf16 keeps 7. Operands
/// in fp64 are never rounded. (The environment variable NVIDIA_TF32_OVERRIDE overrides this in cuBLAS: 0 forbids tf32, and 1 uses tf32
/// for fp32.)
enum class GemmMath : std::uint8_t { fp32, tf32, bf16 };

} // namespace orthant::pmm

namespace orthant::pmm::vendor {

/// A row-major operand whose rows begin `row_stride` numbers apart.
template<class T>
struct GemmOperand {
  T const* data = nullptr;
  std::int64_t row_stride = 0;
  Transpose transpose = Transpose::no;
};

/// C [m x n] := alpha op(A) [m x k] op(B) [k x n] + beta C, all row-major. 16-bit operands are multiplied and summed in fp32; a 16-bit
/// result is rounded once.
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
  GemmMath math = GemmMath::fp32; // of fp32 operands
};

/// `size` products of one shape. Each stride is the distance, in numbers, from an operand of one product to that of the next.
struct GemmBatch {
  std::int64_t size = 0;
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  std::int64_t c_stride = 0;
};

/// Handle of the library for one stream of the device that was current at construction, with the library's workspace. Two streams must
/// not share a workspace, and a captured graph continues to use it. Use from one host thread at a time.
class Gemm {
 public:
  /// `stream`: cudaStream_t or hipStream_t; null is the default stream. Allocates 32 MiB (CUDA). Throws Error if the library cannot be
  /// initialized.
  explicit Gemm(void* stream);

  /// Enqueues on the stream. Does not wait or allocate. Throws Error unless m, n and k are positive, extents and strides are below 2^31, and
  /// the library supports `math`. C is not read if beta is 0. Operand is float, double, Bf16Number or Fp16Number. Result is the same type, or float for 16-bit operands.
  template<class Operand, class Result>
  void multiply(GemmProduct<Operand, Result> const& product) const;
  /// Multiplies all products of a batch. `first` describes its first product.
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
};

/// True if `stream` is being captured into a graph. Its work is then not run, and cannot be timed.
[[nodiscard]] bool is_capturing(void* stream);

// A row-major product as a call of a column-major library. A row-major matrix, read as column-major, is its transpose. The operands
// therefore swap places and keep their `transpose`:
//
//   C^T [n x m] := alpha op(B)^T op(A)^T + beta C^T

/// Integer arguments of the library's call. C^T has n rows and m columns.
struct ColumnMajorExtents {
  int rows;
  int columns;
  int inner;
  int leading_of_b; // the library's first operand
  int leading_of_a; // its second
  int leading_of_c;
};

/// Returns `number` as int. Throws Error unless it is positive and below 2^31.
inline int as_library_int(std::int64_t number) {
  if (number < 1 || number > std::numeric_limits<int>::max())
    runtime::throw_internal("a dense product's extent, stride or number is " + std::to_string(number),
                            std::source_location::current());
  return static_cast<int>(number);
}

/// Throws Error unless all extents and strides are positive and below 2^31.
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
