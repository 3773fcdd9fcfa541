// SPDX-License-Identifier: Apache-2.0
#include "pmm/gemm/blas_library.hpp"
#include "pmm/gemm/dense_library.hpp"

#include <algorithm>
#include <cblas.h>
#include <fmt/format.h>
#include <limits>

// Only OpenBLAS has these functions. They are weak, so that another BLAS can be linked instead.
extern "C" {
[[gnu::weak]] char* openblas_get_corename();
[[gnu::weak]] char* openblas_get_config();
}

namespace orthant::pmm {

BlasLibrary find_blas_library() {
  if (openblas_get_corename == nullptr || openblas_get_config == nullptr) return {"unknown", "", false};
  std::string_view const config = openblas_get_config(); // "OpenBLAS 0.3.21 DYNAMIC_ARCH .. MAX_THREADS=64"
  std::string name = "OpenBLAS";
  if (auto const space = config.find(' '); config.starts_with("OpenBLAS ") && space != std::string_view::npos)
    name = config.substr(0, config.find(' ', space + 1));
  return {name, openblas_get_corename(), config.find("DYNAMIC_ARCH") != std::string_view::npos};
}

} // namespace orthant::pmm

// Only OpenBLAS has this function. Another BLAS takes its number of threads from the environment.
extern "C" [[gnu::weak]] void openblas_set_num_threads(int);

namespace orthant::pmm {
namespace {

blasint as_blas(std::int64_t extent) {
  ORTHANT_REQUIRE(extent <= std::numeric_limits<blasint>::max(), "matrix extent ", extent);
  return static_cast<blasint>(extent);
}

CBLAS_TRANSPOSE as_blas(Transpose transpose) {
  return transpose == Transpose::yes ? CblasTrans : CblasNoTrans;
}

template<class T>
blasint leading(Panel<T> const& panel) {
  return as_blas(std::max<std::int64_t>(panel.row_stride, 1)); // BLAS does not accept 0
}

} // namespace

template<class T>
void detail::multiply_in_one_call(DenseProduct<T> const& p) {
  auto const& [m, n, k] = p.extents;
  auto const call = [&](auto gemm) {
    gemm(CblasRowMajor, as_blas(p.transpose_a), as_blas(p.transpose_b), as_blas(m), as_blas(n), as_blas(k),
         p.alpha, p.a.data, leading(p.a), p.b.data, leading(p.b), p.beta, p.c.data, leading(p.c));
  };
  if constexpr (sizeof(T) == sizeof(float))
    call(cblas_sgemm);
  else
    call(cblas_dgemm);
}

namespace {

/// True if a tall product should be cut into small ones. On one AVX-512 core, OpenBLAS multiplies matrices of up to 10^6 multiply-adds
/// without packing them first. GFLOP/s on Zen 4 in fp32, whole and in pieces:
///
///   48,980 x 128 times 128 x {128, 64, 47}       77 84, 65 84, 50 64
///   A^T B with 128 x {128, 64, 47} sums          77 97, 66 93, 51 76
///
/// Depends only on the processor and the number of threads, not on timings, so that runs are reproducible to the bit.
bool multiplies_small_ones_fast() {
  static bool const is_fast = vectors_of_core(find_blas_library().core) == runtime::Vectors::avx512;
  return is_fast && gemm_threads() == 1;
}

/// Length of the pieces along the long extent; 0 if the product is not cut.
std::int64_t piece_length(std::int64_t length, std::int64_t others) {
  constexpr auto most_products = std::int64_t{1'000'000};
  constexpr auto shortest = std::int64_t{16};
  if (!multiplies_small_ones_fast() || others == 0) return 0;
  auto const piece = most_products / others / shortest * shortest;
  return piece < shortest || length <= piece ? 0 : std::min<std::int64_t>(piece, 96);
}

/// C[rows,:] := alpha A[rows,:] op(B) + beta C[rows,:] for pieces of `length` rows
template<class T>
void multiply_rows(DenseProduct<T> const& p, std::int64_t length) {
  auto product = p;
  product.transpose_b = Transpose::no;
  if (p.transpose_b == Transpose::yes) product.b = detail::transposed(p.b);
  detail::for_each_piece_of_rows(product, length, detail::multiply_in_one_call<T>);
}

template<class T>
bool multiply_with_blas(DenseProduct<T> const& p) {
  auto const& [m, n, k] = p.extents;
  auto const is_sum = p.transpose_a == Transpose::yes;
  if (auto const length = piece_length(m, n * k); !is_sum && length > 0)
    multiply_rows(p, length);
  else if (auto const terms = piece_length(k, m * n); is_sum && p.transpose_b == Transpose::no && terms > 0)
    detail::for_each_piece_of_terms(p, terms, detail::multiply_in_one_call<T>);
  else
    detail::multiply_in_one_call(p);
  return true;
}

class OpenBlas : public DenseLibrary {
 public:
  [[nodiscard]] std::string_view name() const override { return "openblas"; }
  [[nodiscard]] std::string version() const override {
    auto const library = find_blas_library();
    return library.core.empty() ? library.name : fmt::format("{} ({})", library.name, library.core);
  }
  using DenseLibrary::multiply;
  bool multiply(DenseProduct<float> const& product) const override { return multiply_with_blas(product); }
  bool multiply(DenseProduct<double> const& product) const override { return multiply_with_blas(product); }
};

} // namespace

namespace detail {

template void multiply_in_one_call(DenseProduct<float> const&);
template void multiply_in_one_call(DenseProduct<double> const&);

DenseLibrary const& openblas_library() {
  static OpenBlas const library;
  return library;
}

void set_openblas_threads(int num_threads) {
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(num_threads);
}

} // namespace detail

} // namespace orthant::pmm
