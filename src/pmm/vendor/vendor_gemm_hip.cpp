// SPDX-License-Identifier: Apache-2.0
#include "pmm/vendor/vendor_api.hpp"
#include "pmm/vendor/vendor_gemm.hpp"

#define HIPBLAS_V2 // declares hipblasGemmEx as in hipBLAS 3
#include <hipblas/hipblas.h>
#include <type_traits>

namespace orthant::pmm::vendor {

#if hipblasVersionMajor >= 2 // this also implies a HIP version with bf16
template<>
inline constexpr NumberType number_type<runtime::Bf16Number> = HIP_R_16BF;
template<>
inline constexpr NumberType number_type<runtime::Fp16Number> = HIP_R_16F;
#endif

namespace {

using runtime::Bf16Number;
using runtime::Fp16Number;

#define ORTHANT_CHECK_HIPBLAS(call) check((call), HIPBLAS_STATUS_SUCCESS, #call)

hipblasOperation_t operation(Transpose transpose) {
  return transpose == Transpose::yes ? HIPBLAS_OP_T : HIPBLAS_OP_N;
}

template<class T, class Function>
void multiply_one(Function gemm, void* library, GemmProduct<T> const& p) {
  auto const extents = column_major_extents(p);
  ORTHANT_CHECK_HIPBLAS(gemm(static_cast<hipblasHandle_t>(library), operation(p.b.transpose),
                             operation(p.a.transpose), extents.rows, extents.columns, extents.inner, &p.alpha,
                             p.b.data, extents.leading_of_b, p.a.data, extents.leading_of_a, &p.beta, p.c,
                             extents.leading_of_c));
}

/// Product of 16-bit operands, summed in fp32.
template<class Operand, class Result>
void multiply_16_bit(void* library, GemmProduct<Operand, Result> const& p) {
#if hipblasVersionMajor >= 2
  auto const extents = column_major_extents(p);
  ORTHANT_CHECK_HIPBLAS(
      hipblasGemmEx(static_cast<hipblasHandle_t>(library), operation(p.b.transpose), operation(p.a.transpose),
                    extents.rows, extents.columns, extents.inner, &p.alpha, p.b.data, number_type<Operand>,
                    extents.leading_of_b, p.a.data, number_type<Operand>, extents.leading_of_a, &p.beta, p.c,
                    number_type<Result>, extents.leading_of_c, HIPBLAS_COMPUTE_32F, HIPBLAS_GEMM_DEFAULT));
#else
  static_cast<void>(library);
  static_cast<void>(p);
  runtime::throw_internal("products of 16-bit numbers need hipBLAS 2 or newer",
                          std::source_location::current());
#endif
}

template<class T, class Function>
void multiply_all(Function gemm, void* library, GemmProduct<T> const& p, GemmBatch const& batch) {
  auto const extents = column_major_extents(p);
  ORTHANT_CHECK_HIPBLAS(gemm(static_cast<hipblasHandle_t>(library), operation(p.b.transpose),
                             operation(p.a.transpose), extents.rows, extents.columns, extents.inner, &p.alpha,
                             p.b.data, extents.leading_of_b, batch.b_stride, p.a.data, extents.leading_of_a,
                             batch.a_stride, &p.beta, p.c, extents.leading_of_c, batch.c_stride,
                             as_library_int(batch.size)));
}

void require_fp32(GemmMath math) {
  if (math != GemmMath::fp32)
    runtime::throw_internal("hipBLAS products are in fp32 only", std::source_location::current());
}

} // namespace

void Gemm::FreeMemory::operator()(void* memory) const noexcept {
  static_cast<void>(hipFree(memory));
}

void Gemm::Destroy::operator()(void* handle) const noexcept {
  static_cast<void>(hipblasDestroy(static_cast<hipblasHandle_t>(handle)));
}

// hipblasGemmEx, which selects the arithmetic, has another signature in hipBLAS 1, but hipblasSgemm and hipblasDgemm do not. Therefore
// only products of 16-bit numbers need hipBLAS 2. hipblasSetWorkspace also needs it and is not used: the library allocates its own memory.
Gemm::Gemm(void* stream) {
  hipblasHandle_t handle = nullptr;
  ORTHANT_CHECK_HIPBLAS(hipblasCreate(&handle));
  handle_ = decltype(handle_)(handle);
  ORTHANT_CHECK_HIPBLAS(hipblasSetStream(handle, static_cast<Stream>(stream)));
}

template<class Operand, class Result>
void Gemm::multiply(GemmProduct<Operand, Result> const& product) const {
  require_fp32(product.math);
  if constexpr (runtime::is_16_bit<Operand>)
    multiply_16_bit(handle_.get(), product);
  else if constexpr (std::is_same_v<Operand, double>)
    multiply_one(hipblasDgemm, handle_.get(), product);
  else
    multiply_one(hipblasSgemm, handle_.get(), product);
}

template void Gemm::multiply(GemmProduct<float> const&) const;
template void Gemm::multiply(GemmProduct<double> const&) const;
template void Gemm::multiply(GemmProduct<Bf16Number> const&) const;
template void Gemm::multiply(GemmProduct<Fp16Number> const&) const;
template void Gemm::multiply(GemmProduct<Bf16Number, float> const&) const;
template void Gemm::multiply(GemmProduct<Fp16Number, float> const&) const;

void Gemm::multiply(GemmProduct<float> const& first, GemmBatch const& batch) const {
  require_fp32(first.math);
  multiply_all(hipblasSgemmStridedBatched, handle_.get(), first, batch);
}

void Gemm::multiply(GemmProduct<double> const& first, GemmBatch const& batch) const {
  multiply_all(hipblasDgemmStridedBatched, handle_.get(), first, batch);
}

bool is_capturing(void* stream) {
  auto status = hipStreamCaptureStatusNone;
  ORTHANT_CHECK_RUNTIME(StreamIsCapturing(static_cast<Stream>(stream), &status));
  return status != hipStreamCaptureStatusNone;
}

} // namespace orthant::pmm::vendor
