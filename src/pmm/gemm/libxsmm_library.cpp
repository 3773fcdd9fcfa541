// SPDX-License-Identifier: Apache-2.0
//
// LIBXSMM's products: kernels for small matrices of one shape, compiled at run time for this processor. A tall product
// is a row of them, without packing:
//
//   C[rows,:] := A[rows,:] op(B)                      a few rows at a time; a B that is transposed is copied first
//   C         := sum over terms of A[terms,:]^T B[terms,:]
//
// Measured on one core of a Zen 4 (LIBXSMM 1.17, GFLOP/s of 118; 24,490 rows): 128 x {128, 47} 100 108, with sums over
// these rows 105 103; OpenBLAS in pieces 92 85, 99 83.
#include "pmm/gemm/dense_library.hpp"
#include "pmm/gemm/product_pieces.hpp"

#include <fmt/format.h>
#include <libxsmm.h>
#include <tuple>

namespace orthant::pmm {
namespace {

// The side that all pieces read stays in the second cache level.
constexpr auto most_shared = std::int64_t{1} << 17;
// Fewer rows per kernel keep its operands in the first level; of larger B more rows are read per load.
constexpr auto small_shared = std::int64_t{1} << 15;
constexpr auto few_rows = std::int64_t{8};
constexpr auto many_rows = std::int64_t{16};
constexpr auto num_terms = std::int64_t{256};
// Kernels add term by term to a float, which ends at 2^24 ones.
constexpr auto longest_sum = std::int64_t{1} << 14;

using Kernel = libxsmm_smmfunction;

/// C := op(A) B + beta C for these extents. LIBXSMM's matrices are stored by columns, so that it computes
/// C^T = B^T op(A)^T. Null if it cannot compile for this processor.
Kernel kernel_of(DenseProduct<float> const& p) {
  auto const as_int = [](std::int64_t extent) { return static_cast<libxsmm_blasint>(extent); };
  auto const stride_a = as_int(p.a.row_stride);
  auto const stride_b = as_int(p.b.row_stride);
  auto const stride_c = as_int(p.c.row_stride);
  int const flags = p.transpose_a == Transpose::yes ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
  return libxsmm_smmdispatch(as_int(p.extents.n), as_int(p.extents.m), as_int(p.extents.k), &stride_b,
                             &stride_a, &stride_c, &p.alpha, &p.beta, &flags, nullptr);
}

bool has_kernels() {
  static bool const has = [] {
    libxsmm_blasint const extent = 16;
    return libxsmm_smmdispatch(extent, extent, extent, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                               nullptr) != nullptr;
  }();
  return has;
}

/// Multiplies the pieces that for_each(work) makes; most have the same extents.
template<class ForEach>
void multiply_pieces(ForEach const& for_each) {
  Kernel kernel = nullptr;
  std::tuple<std::int64_t, std::int64_t, float> last;
  for_each([&](DenseProduct<float> const& piece) {
    if (std::tuple const next{piece.extents.m, piece.extents.k, piece.beta};
        kernel == nullptr || next != last) {
      kernel = kernel_of(piece);
      ORTHANT_REQUIRE(kernel != nullptr, "LIBXSMM has no kernel for ", piece.extents.m, " x ",
                      piece.extents.n, " x ", piece.extents.k);
      last = next;
    }
    kernel(piece.b.data, piece.a.data, piece.c.data);
  });
}

/// C := A op(B) + beta C, a few rows at a time.
void multiply_rows(DenseProduct<float> const& p) {
  auto product = p;
  product.transpose_b = Transpose::no;
  if (p.transpose_b == Transpose::yes) product.b = detail::transposed(p.b);
  auto const num_rows = p.extents.n * p.extents.k <= small_shared ? few_rows : many_rows;
  multiply_pieces([&](auto const& run) { detail::for_each_piece_of_rows(product, num_rows, run); });
}

/// C := A^T B + beta C, some terms at a time.
void multiply_terms(DenseProduct<float> const& p) {
  detail::add_pieces_of_terms(p, longest_sum, [](DenseProduct<float> const& sum) {
    multiply_pieces([&](auto const& run) { detail::for_each_piece_of_terms(sum, num_terms, run); });
  });
}

class Libxsmm : public DenseLibrary {
 public:
  [[nodiscard]] std::string_view name() const override { return "libxsmm"; }
  [[nodiscard]] std::string version() const override {
    // libxsmm_get_target_arch() would make the library's tables, which take 10 MiB.
    return fmt::format("LIBXSMM {} ({})", LIBXSMM_VERSION, libxsmm_cpuid_name(libxsmm_cpuid()));
  }
  using DenseLibrary::multiply;
  bool multiply(DenseProduct<float> const& p) const override {
    auto const [m, n, k] = p.extents;
    if (p.alpha != 1 || (p.beta != 0 && p.beta != 1) || gemm_threads() != 1 || !has_kernels()) return false;
    auto const is_sum = p.transpose_a == Transpose::yes;
    if (n > most_shared / (is_sum ? m : k) || (is_sum && p.transpose_b == Transpose::yes)) return false;
    if (is_sum)
      multiply_terms(p);
    else
      multiply_rows(p);
    return true;
  }
};

} // namespace

namespace detail {

DenseLibrary const* libxsmm_library() {
  static Libxsmm const library;
  return &library;
}

} // namespace detail

} // namespace orthant::pmm
