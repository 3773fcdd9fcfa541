#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Dense products through the vendor's library, on raw device pointers and a stream: cuBLAS
// (vendor_gemm_cuda.cpp) or hipBLAS (vendor_gemm_hip.cpp). Needs neither Kokkos nor MPI.

#include "pmm/gemm_options.hpp"
#include "runtime/unique_handle.hpp"

#include <cstdint>

namespace orthant::pmm::vendor {

/// A row-major operand whose rows lie `row_stride` numbers apart.
template<class T>
struct GemmOperand {
  T const* data = nullptr;
  std::int64_t row_stride = 0;
  Transpose transpose = Transpose::no;
};

/// C [m x n] := alpha op(A) [m x k] op(B) [k x n] + beta C, all row-major.
template<class T>
struct GemmProduct {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  T alpha = 1;
  GemmOperand<T> a;
  GemmOperand<T> b;
  T beta = 0;
  T* c = nullptr;
  std::int64_t c_row_stride = 0;
};

/// The library's handle for the device that was current when it was made. One host thread at a time.
class Gemm {
 public:
  /// Throws Error where the library cannot start or has not this arithmetic.
  explicit Gemm(GemmMath math);

  /// Enqueues on `stream` (cudaStream_t, hipStream_t; null: the default one). Does not wait. m, n and k are
  /// positive; extents and strides below 2^31 (Error). C is not read where beta is 0.
  void multiply(void* stream, GemmProduct<float> const& product) const;
  void multiply(void* stream, GemmProduct<double> const& product) const;

 private:
  struct Destroy {
    void operator()(void* handle) const noexcept;
  };
  /// The library's scratch memory on the device, kept from product to product and from stream to stream.
  struct FreeWorkspace {
    void operator()(void* memory) const noexcept;
  };
  runtime::UniqueHandle<void*, nullptr, FreeWorkspace> workspace_; // freed after the handle that knows it
  runtime::UniqueHandle<void*, nullptr, Destroy> handle_;
  GemmMath math_;
};

} // namespace orthant::pmm::vendor
