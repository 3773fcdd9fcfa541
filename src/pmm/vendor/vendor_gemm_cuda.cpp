// SPDX-License-Identifier: Apache-2.0
#include "pmm/vendor/vendor_api.hpp"
#include "pmm/vendor/vendor_gemm.hpp"
#include "pmm/vendor/vendor_gemm_extents.hpp"

#include <cublas_v2.h>

namespace orthant::pmm::vendor {
namespace {

#define ORTHANT_CHECK_CUBLAS(call) check((call), CUBLAS_STATUS_SUCCESS, #call)

/// What NVIDIA recommends on Hopper and Blackwell; older devices use less of it.
constexpr auto workspace_bytes = std::size_t{32} << 20;

cublasOperation_t operation(Transpose transpose) {
  return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/// fp32: fused multiply-adds in fp32. The handle's math mode stays the default, which lets no tensor core
/// round what the compute type does not. Not the pedantic type, which only forbids faster kernels of the same
/// arithmetic. Atomics stay forbidden (the handle's default), so that a product repeats to the bit.
cublasComputeType_t compute_type(GemmMath math) {
  switch (math) {
  case GemmMath::tf32:
    return CUBLAS_COMPUTE_32F_FAST_TF32;
  case GemmMath::bf16:
    return CUBLAS_COMPUTE_32F_FAST_16BF;
  default:
    return CUBLAS_COMPUTE_32F;
  }
}

template<class T>
void multiply_one(void* library, GemmProduct<T> const& p, cublasComputeType_t compute) {
  auto const extents = column_major_extents(p);
  ORTHANT_CHECK_CUBLAS(cublasGemmEx(static_cast<cublasHandle_t>(library), operation(p.b.transpose),
                                    operation(p.a.transpose), extents.rows, extents.columns, extents.inner,
                                    &p.alpha, p.b.data, number_type<T>, extents.leading_of_b, p.a.data,
                                    number_type<T>, extents.leading_of_a, &p.beta, p.c, number_type<T>,
                                    extents.leading_of_c, compute, CUBLAS_GEMM_DEFAULT));
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
  static_cast<void>(cublasSetStream(library, nullptr)); // its own may be gone
  static_cast<void>(cublasDestroy(library));
}

Gemm::Gemm(GemmMath math, void* stream) : math_(math) {
  void* workspace = nullptr;
  ORTHANT_CHECK_RUNTIME(Malloc(&workspace, workspace_bytes));
  workspace_ = decltype(workspace_)(workspace);
  cublasHandle_t handle = nullptr;
  ORTHANT_CHECK_CUBLAS(cublasCreate(&handle));
  handle_ = decltype(handle_)(handle);
  // In this order: a new stream brings the library's own memory back, which it would allocate while a graph
  // is captured.
  ORTHANT_CHECK_CUBLAS(cublasSetStream(handle, static_cast<Stream>(stream)));
  ORTHANT_CHECK_CUBLAS(cublasSetWorkspace(handle, workspace, workspace_bytes));
}

void Gemm::multiply(GemmProduct<float> const& product) const {
  multiply_one(handle_.get(), product, compute_type(math_));
}

void Gemm::multiply(GemmProduct<double> const& product) const {
  multiply_one(handle_.get(), product, CUBLAS_COMPUTE_64F);
}

void Gemm::multiply(GemmProduct<float> const& first, GemmBatch const& batch) const {
  multiply_all(handle_.get(), first, batch, compute_type(math_));
}

void Gemm::multiply(GemmProduct<double> const& first, GemmBatch const& batch) const {
  multiply_all(handle_.get(), first, batch, CUBLAS_COMPUTE_64F);
}

bool is_capturing(void* stream) {
  auto status = cudaStreamCaptureStatusNone;
  ORTHANT_CHECK_RUNTIME(StreamIsCapturing(static_cast<Stream>(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

} // namespace orthant::pmm::vendor
