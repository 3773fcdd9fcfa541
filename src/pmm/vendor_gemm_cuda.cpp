// SPDX-License-Identifier: Apache-2.0
#include "pmm/vendor_api.hpp"
#include "pmm/vendor_gemm.hpp"
#include "pmm/vendor_gemm_extents.hpp"

#include <cublas_v2.h>

namespace orthant::pmm::vendor {
namespace {

#define ORTHANT_CHECK_CUBLAS(call) check((call), CUBLAS_STATUS_SUCCESS, #call)

cublasOperation_t operation(Transpose transpose) {
  return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

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

/// What NVIDIA recommends for compute capability 9; fewer need less.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

template<class T>
void multiply_as(cublasHandle_t handle, void* workspace, void* stream, GemmProduct<T> const& p,
                 cublasComputeType_t compute) {
  auto const extents = column_major_extents(p);
  // With a stream the library takes another workspace, which in a recorded graph it would allocate anew.
  ORTHANT_CHECK_CUBLAS(cublasSetStream(handle, static_cast<Stream>(stream)));
  ORTHANT_CHECK_CUBLAS(cublasSetWorkspace(handle, workspace, workspace_bytes));
  ORTHANT_CHECK_CUBLAS(cublasGemmEx(handle, operation(p.b.transpose), operation(p.a.transpose), extents.rows,
                                    extents.columns, extents.inner, &p.alpha, p.b.data, number_type<T>,
                                    extents.leading_of_b, p.a.data, number_type<T>, extents.leading_of_a,
                                    &p.beta, p.c, number_type<T>, extents.leading_of_c, compute,
                                    CUBLAS_GEMM_DEFAULT));
}

} // namespace

void Gemm::Destroy::operator()(void* handle) const noexcept {
  static_cast<void>(cublasDestroy(static_cast<cublasHandle_t>(handle)));
}

void Gemm::FreeWorkspace::operator()(void* memory) const noexcept {
  static_cast<void>(cudaFree(memory));
}

Gemm::Gemm(GemmMath math) : math_(math) {
  void* workspace = nullptr;
  ORTHANT_CHECK_RUNTIME(Malloc(&workspace, workspace_bytes));
  workspace_ = decltype(workspace_)(workspace);
  cublasHandle_t handle = nullptr;
  ORTHANT_CHECK_CUBLAS(cublasCreate(&handle));
  handle_ = decltype(handle_)(handle);
}

void Gemm::multiply(void* stream, GemmProduct<float> const& product) const {
  multiply_as(static_cast<cublasHandle_t>(handle_.get()), workspace_.get(), stream, product,
              compute_type(math_));
}

void Gemm::multiply(void* stream, GemmProduct<double> const& product) const {
  multiply_as(static_cast<cublasHandle_t>(handle_.get()), workspace_.get(), stream, product,
              CUBLAS_COMPUTE_64F);
}

} // namespace orthant::pmm::vendor
