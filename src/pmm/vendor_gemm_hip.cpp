// SPDX-License-Identifier: Apache-2.0
#include "pmm/vendor_api.hpp"
#include "pmm/vendor_gemm.hpp"
#include "pmm/vendor_gemm_extents.hpp"

#include <hipblas/hipblas.h>

namespace orthant::pmm::vendor {
namespace {

#define ORTHANT_CHECK_HIPBLAS(call) check((call), HIPBLAS_STATUS_SUCCESS, #call)

hipblasOperation_t operation(Transpose transpose) {
  return transpose == Transpose::yes ? HIPBLAS_OP_T : HIPBLAS_OP_N;
}

template<class T, class Function>
void multiply_by(Function gemm, hipblasHandle_t handle, void* stream, GemmProduct<T> const& p) {
  auto const extents = column_major_extents(p);
  ORTHANT_CHECK_HIPBLAS(hipblasSetStream(handle, static_cast<Stream>(stream)));
  ORTHANT_CHECK_HIPBLAS(gemm(handle, operation(p.b.transpose), operation(p.a.transpose), extents.rows,
                             extents.columns, extents.inner, &p.alpha, p.b.data, extents.leading_of_b,
                             p.a.data, extents.leading_of_a, &p.beta, p.c, extents.leading_of_c));
}

} // namespace

void Gemm::Destroy::operator()(void* handle) const noexcept {
  static_cast<void>(hipblasDestroy(static_cast<hipblasHandle_t>(handle)));
}

void Gemm::FreeWorkspace::operator()(void*) const noexcept {} // rocBLAS keeps its own

// hipblasGemmEx, which chooses the arithmetic, has another signature in each major version; ?gemm has not.
Gemm::Gemm(GemmMath math) : math_(math) {
  if (math_ != GemmMath::fp32)
    runtime::throw_internal("hipBLAS products are in fp32 only", std::source_location::current());
  hipblasHandle_t handle = nullptr;
  ORTHANT_CHECK_HIPBLAS(hipblasCreate(&handle));
  handle_ = decltype(handle_)(handle);
}

void Gemm::multiply(void* stream, GemmProduct<float> const& product) const {
  multiply_by(hipblasSgemm, static_cast<hipblasHandle_t>(handle_.get()), stream, product);
}

void Gemm::multiply(void* stream, GemmProduct<double> const& product) const {
  multiply_by(hipblasDgemm, static_cast<hipblasHandle_t>(handle_.get()), stream, product);
}

} // namespace orthant::pmm::vendor
