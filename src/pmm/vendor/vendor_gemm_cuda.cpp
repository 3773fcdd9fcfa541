// SPDX-License-Identifier: Apache-2.0
#include "pmm/vendor/vendor_api.hpp"
#include "pmm/vendor/vendor_gemm.hpp"

#include <cublas_v2.h>
#include <type_traits>

namespace orthant::pmm::vendor {

template<>
inline constexpr NumberType number_type<runtime::Bf16Number> = CUDA_R_16BF;
template<>
inline constexpr NumberType number_type<runtime::Fp16Number> = CUDA_R_16F;

namespace {

using runtime::Bf16Number;
using runtime::Fp16Number;

#define ORTHANT_CHECK_CUBLAS(call) check((call), CUBLAS_STATUS_SUCCESS, #call)

/// Size that NVIDIA recommends for Hopper and Blackwell. Older devices use only part of it.
constexpr auto workspace_bytes = std::size_t{32} << 20;

cublasOperation_t operation(Transpose transpose) {
  return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/// fp32 uses fused multiply-adds in fp32. The handle keeps the default math mode, in which tensor cores round only what the compute type
/// allows. The pedantic type is not used: it only excludes faster kernels with the same arithmetic. The handle does not allow atomics
/// (the default), so that products are reproducible to the bit.
template<class Operand>
cublasComputeType_t compute_type(GemmMath math) {
  if (std::is_same_v<Operand, double>) return CUBLAS_COMPUTE_64F;
  if (runtime::is_16_bit<Operand>) return CUBLAS_COMPUTE_32F; // products of 16-bit numbers are exact in fp32
  switch (math) {
  case GemmMath::tf32:
    return CUBLAS_COMPUTE_32F_FAST_TF32;
  case GemmMath::bf16:
    return CUBLAS_COMPUTE_32F_FAST_16BF;
  default:
    return CUBLAS_COMPUTE_32F;
  }
}

template<class Operand, class Result>
void multiply_one(void* library, GemmProduct<Operand, Result> const& p, cublasComputeType_t compute) {
  auto const extents = column_major_extents(p);
  ORTHANT_CHECK_CUBLAS(cublasGemmEx(static_cast<cublasHandle_t>(library), operation(p.b.transpose),
                                    operation(p.a.transpose), extents.rows, extents.columns, extents.inner,
                                    &p.alpha, p.b.data, number_type<Operand>, extents.leading_of_b, p.a.data,
                                    number_type<Operand>, extents.leading_of_a, &p.beta, p.c,
                                    number_type<Result>, extents.leading_of_c, compute, CUBLAS_GEMM_DEFAULT));
}

template<class T>
void multiply_all(void* library, GemmProduct<T> const& p, GemmBatch const& batch,
                  cublasComputeType_t compute) {
  auto const extents = column_major_extents(p);
  ORTHANT_CHECK_CUBLAS(cublasGemmStridedBatchedEx(
      static_cast<cublasHandle_t>(library), operation(p.b.transpose), operation(p.a.transpose), extents.rows,
      extents.columns, extents.inner, &p.alpha, p.b.data, number_type<T>, extents.leading_of_b,
      batch.b_stride, p.a.data, number_type<T>, extents.leading_of_a, batch.a_stride, &p.beta, p.c,
      number_type<T>, extents.leading_of_c, batch.c_stride, as_library_int(batch.size), compute,
      CUBLAS_GEMM_DEFAULT));
}

} // namespace

void Gemm::FreeMemory::operator()(void* memory) const noexcept {
  static_cast<void>(cudaFree(memory));
}

void Gemm::Destroy::operator()(void* handle) const noexcept {
  auto* const library = static_cast<cublasHandle_t>(handle);
  static_cast<void>(cublasSetStream(library, nullptr)); // the handle's stream may no longer exist
  static_cast<void>(cublasDestroy(library));
}

Gemm::Gemm(void* stream) {
  void* workspace = nullptr;
  ORTHANT_CHECK_RUNTIME(Malloc(&workspace, workspace_bytes));
  workspace_ = decltype(workspace_)(workspace);
  cublasHandle_t handle = nullptr;
  ORTHANT_CHECK_CUBLAS(cublasCreate(&handle));
  handle_ = decltype(handle_)(handle);
  // The order matters: setting a stream resets the workspace to the library's own, which would be allocated while a graph is captured.
  ORTHANT_CHECK_CUBLAS(cublasSetStream(handle, static_cast<Stream>(stream)));
  ORTHANT_CHECK_CUBLAS(cublasSetWorkspace(handle, workspace, workspace_bytes));
  // Otherwise, a 16-bit result may be the sum of partial sums that were already rounded to 16 bits.
  ORTHANT_CHECK_CUBLAS(cublasSetMathMode(
      handle,
      static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
}

template<class Operand, class Result>
void Gemm::multiply(GemmProduct<Operand, Result> const& product) const {
  multiply_one(handle_.get(), product, compute_type<Operand>(product.math));
}

template void Gemm::multiply(GemmProduct<float> const&) const;
template void Gemm::multiply(GemmProduct<double> const&) const;
template void Gemm::multiply(GemmProduct<Bf16Number> const&) const;
template void Gemm::multiply(GemmProduct<Fp16Number> const&) const;
template void Gemm::multiply(GemmProduct<Bf16Number, float> const&) const;
template void Gemm::multiply(GemmProduct<Fp16Number, float> const&) const;

void Gemm::multiply(GemmProduct<float> const& first, GemmBatch const& batch) const {
  multiply_all(handle_.get(), first, batch, compute_type<float>(first.math));
}

void Gemm::multiply(GemmProduct<double> const& first, GemmBatch const& batch) const {
  multiply_all(handle_.get(), first, batch, compute_type<double>(first.math));
}

bool is_capturing(void* stream) {
  auto status = cudaStreamCaptureStatusNone;
  ORTHANT_CHECK_RUNTIME(StreamIsCapturing(static_cast<Stream>(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

} // namespace orthant::pmm::vendor
