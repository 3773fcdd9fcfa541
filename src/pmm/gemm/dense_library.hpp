#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The libraries that multiply dense matrices on a host, each behind one interface and in one source file:
//
//   openblas   OpenBLAS, or another BLAS in its place          fp32, fp64      always there
//   onednn     oneDNN, if CMake found it                       fp32, bf16
//   libxsmm    LIBXSMM, if CMake found it                      fp32 times small matrices, sums into small ones
//   orthant    kernels of our own (pmm/tall_gemm), on x86-64   the same
//
// local_gemm() takes the one that gemm_choice.hpp names for a product. Host only.

#include "pmm/gemm/local_gemm.hpp"

#include <span>
#include <string>
#include <string_view>

namespace orthant::pmm {

/// C := alpha op(A) op(B) + beta C. Operands and results as those of local_gemm().
template<class Operand, class Result = Operand>
struct DenseProduct {
  GemmExtents extents; // none is 0
  runtime::SumOf<Result> alpha = 1;
  Transpose transpose_a = Transpose::no;
  Panel<Operand> a;
  Transpose transpose_b = Transpose::no;
  Panel<Operand> b;
  runtime::SumOf<Result> beta = 0;
  Panel<Result> c; // not read if beta is 0
};

/// Each multiply() returns true when C is written, on as many threads as set_gemm_threads() says; our own kernels work on
/// Kokkos's threads. Returns false, and writes nothing, if the library does not have that product. The bits of C depend on the
/// product's numbers, extents and transposes alone, and of a library on its number of threads. Throws Error if it fails.
class DenseLibrary {
 public:
  DenseLibrary() = default;
  DenseLibrary(DenseLibrary const&) = delete;
  DenseLibrary& operator=(DenseLibrary const&) = delete;
  virtual ~DenseLibrary() = default;

  /// As tables name it: "openblas".
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// "OpenBLAS 0.3.21 (SkylakeX)": the library that runs, which need not be the one compiled against.
  [[nodiscard]] virtual std::string version() const = 0;

  virtual bool multiply(DenseProduct<float> const&) const { return false; }
  virtual bool multiply(DenseProduct<double> const&) const { return false; }
  virtual bool multiply(DenseProduct<runtime::Bf16Number, float> const&) const { return false; }
  virtual bool multiply(DenseProduct<runtime::Bf16Number> const&) const { return false; }
};

/// Those of this build. The first is "openblas", which multiplies fp32 and fp64 whatever the extents.
[[nodiscard]] std::span<DenseLibrary const* const> dense_libraries();

/// Threads of each product, as set_gemm_threads() was told.
[[nodiscard]] int gemm_threads();

namespace detail {

[[nodiscard]] DenseLibrary const& openblas_library();
/// OpenBLAS in one call, where openblas_library() may cut a product in pieces; extents may be 0. For benchmarks.
template<class T>
void multiply_in_one_call(DenseProduct<T> const& product);
/// Null if this build does not have it.
[[nodiscard]] DenseLibrary const* onednn_library();
[[nodiscard]] DenseLibrary const* libxsmm_library();
/// Null if the processor has no vectors that it was written for.
[[nodiscard]] DenseLibrary const* orthant_library();

void set_openblas_threads(int num_threads);

} // namespace detail

} // namespace orthant::pmm
