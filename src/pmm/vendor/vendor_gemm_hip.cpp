// SPDX-License-Identifier: Apache-2.0
#include "pmm/vendor/vendor_api.hpp"
#include "pmm/vendor/vendor_gemm.hpp"
#include "pmm/vendor/vendor_gemm_extents.hpp"

#include <hipblas/hipblas.h>

namespace orthant::pmm::vendor {
namespace {

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

template<class T, class Function>
void multiply_all(Function gemm, void* library, GemmProduct<T> const& p, GemmBatch const& batch) {
  auto const extents = column_major_extents(p);
  ORTHANT_CHECK_HIPBLAS(gemm(static_cast<hipblasHandle_t>(library), operation(p.b.transpose),
                             operation(p.a.transpose), extents.rows, extents.columns, extents.inner, &p.alpha,
                             p.b.data, extents.leading_of_b, batch.b_stride, p.a.data, extents.leading_of_a,
                             batch.a_stride, &p.beta, p.c, extents.leading_of_c, batch.c_stride,
                             as_library_int(batch.size)));
}

} // namespace

void Gemm::FreeMemory::operator()(void* memory) const noexcept {
  static_cast<void>(hipFree(memory));
}

void Gemm::Destroy::operator()(void* handle) const noexcept {
  static_cast<void>(hipblasDestroy(static_cast<hipblasHandle_t>(handle)));
}

// hipblasGemmEx, which chooses the arithmetic, has another signature in each major version; ?gemm has not.
// hipblasSetWorkspace is of hipBLAS 2: the library's own memory is used here.
Gemm::Gemm(GemmMath math, void* stream) : math_(math) {
  if (math_ != GemmMath::fp32)
    runtime::throw_internal("hipBLAS products are in fp32 only", std::source_location::current());
  hipblasHandle_t handle = nullptr;
  ORTHANT_CHECK_HIPBLAS(hipblasCreate(&handle));
  handle_ = decltype(handle_)(handle);
  ORTHANT_CHECK_HIPBLAS(hipblasSetStream(handle, static_cast<Stream>(stream)));
}

void Gemm::multiply(GemmProduct<float> const& product) const {
  multiply_one(hipblasSgemm, handle_.get(), product);
}

void Gemm::multiply(GemmProduct<double> const& product) const {
  multiply_one(hipblasDgemm, handle_.get(), product);
}

void Gemm::multiply(GemmProduct<float> const& first, GemmBatch const& batch) const {
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
