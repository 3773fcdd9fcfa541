// SPDX-License-Identifier: Apache-2.0
//
// Where Kokkos's default execution space is a device; takes the place of local_gemm_openblas.cpp.
#include "pmm/local_gemm.hpp"

#include "pmm/vendor_gemm.hpp"

#include <memory>

namespace orthant::pmm {
namespace {

/// A rank has one device, so one handle, made by the first product. It goes before Kokkos does: a library
/// must not be closed after its device.
struct Library {
  GemmMath math = GemmMath::fp32;
  std::unique_ptr<vendor::Gemm> gemm;
};

Library& library() {
  static Library only;
  return only;
}

vendor::Gemm const& library_gemm() {
  auto& gemm = library().gemm;
  if (gemm == nullptr) {
    gemm = std::make_unique<vendor::Gemm>(library().math);
    Kokkos::push_finalize_hook([] { library().gemm.reset(); });
  }
  return *gemm;
}

/// C := beta C, the product with an empty inner extent.
template<class T>
void scale(runtime::DefaultExec const& exec, T beta, Panel<T> const& c) {
  auto* const data = c.data;
  auto const width = c.num_columns;
  auto const row_stride = c.row_stride;
  Kokkos::parallel_for(
      "orthant::pmm::local_gemm/no terms",
      Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, c.num_rows * width),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto& number = data[i / width * row_stride + i % width];
        number = beta == T{0} ? T{0} : beta * number;
      });
}

} // namespace

template<class T>
void local_gemm(runtime::DefaultExec const& exec, T alpha, Transpose transpose_a, Panel<T> const& a,
                Transpose transpose_b, Panel<T> const& b, T beta, Panel<T> const& c) {
  auto const extents = detail::gemm_extents(transpose_a, a, transpose_b, b, c);
  if (extents.m == 0 || extents.n == 0) return;
  if (extents.k == 0) return scale(exec, beta, c);
  library_gemm().multiply(runtime::compat::native_stream(exec),
                          vendor::GemmProduct<T>{extents.m, extents.n, extents.k, alpha,
                                                 vendor::GemmOperand<T>{a.data, a.row_stride, transpose_a},
                                                 vendor::GemmOperand<T>{b.data, b.row_stride, transpose_b},
                                                 beta, c.data, c.row_stride});
}

void set_gemm_math(GemmMath math) {
  ORTHANT_REQUIRE(library().gemm == nullptr, "the arithmetic of products is chosen before the first of them");
  library().math = math;
}

void set_gemm_threads(int) {} // no product is the host's

template void local_gemm(runtime::DefaultExec const&, float, Transpose, Panel<float> const&, Transpose,
                         Panel<float> const&, float, Panel<float> const&);
template void local_gemm(runtime::DefaultExec const&, double, Transpose, Panel<double> const&, Transpose,
                         Panel<double> const&, double, Panel<double> const&);

} // namespace orthant::pmm
