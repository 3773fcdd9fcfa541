// SPDX-License-Identifier: Apache-2.0
//
// Products with LIBXSMM: kernels for small matrices of one shape, compiled at run time for this processor. A tall product is a sequence
// of small ones, without packing:
//
//   C[rows,:] := A[rows,:] op(B)                      a few rows at a time; a transposed B is copied first
//   C         := sum over terms of A[terms,:]^T B[terms,:]
//
// LIBXSMM's generator compiles the code, which is stored here. Its own registry of kernels would take 11 MiB per process (LIBXSMM 1.17),
// whereas a kernel has 1 to 5 KiB.
//
// GFLOP/s measured on one core of a Zen 4 (LIBXSMM 1.17, at most 118; 24,490 rows): times 128 x {128, 47} 100 108, sums over these rows
// 105 103. OpenBLAS in pieces: 92 85, 99 83.
#include "pmm/gemm/dense_library.hpp"

#include <algorithm>
#include <compare>
#include <fmt/format.h>
#include <libxsmm.h>
#include <libxsmm_generator.h>
#include <map>
#include <memory>
#include <sys/mman.h>
#include <tuple>
#include <vector>

namespace orthant::pmm {
namespace {

// Largest operand that all pieces read; it stays in the L2 cache.
constexpr auto most_shared = std::int64_t{1} << 17;
// Up to this size of B, a kernel has few rows, so that its operands stay in the L1 cache. For a larger B, more rows use each load of B.
constexpr auto small_shared = std::int64_t{1} << 15;
constexpr auto few_rows = std::int64_t{8};
constexpr auto many_rows = std::int64_t{16};
constexpr auto num_terms = std::int64_t{256};
// Kernels add term by term to a float, whose sum of ones stops growing at 2^24.
constexpr auto longest_xsmm_sum = std::int64_t{1} << 14;

constexpr auto most_xsmm_kernels = std::size_t{512}; // many, because experts have different numbers of rows
constexpr auto longest_code = std::size_t{1} << 17;

/// Key of a kernel: C := op(A) B + beta C for these extents and strides. LIBXSMM's matrices are column-major, so the kernel computes
/// C^T = B^T op(A)^T.
struct Description {
  libxsmm_blasint m, n, k, stride_a, stride_b, stride_c;
  float beta;
  Transpose transpose_a;

  auto operator<=>(Description const&) const = default;
};

Description description_of(DenseProduct<float> const& p) {
  auto const as_int = [](std::int64_t extent) { return static_cast<libxsmm_blasint>(extent); };
  return {as_int(p.extents.m),
          as_int(p.extents.n),
          as_int(p.extents.k),
          as_int(p.a.row_stride),
          as_int(p.b.row_stride),
          as_int(p.c.row_stride),
          p.beta,
          p.transpose_a};
}

using XsmmKernel = void (*)(float const* b, float const* a, float* c);

/// Deleter of the memory pages of a kernel.
struct Unmap {
  std::size_t num_bytes = 0;
  void operator()(void* pages) const { munmap(pages, num_bytes); }
};
using Code = std::unique_ptr<void, Unmap>;

/// Copies the code to pages that are executable and not writable. Returns null if the system does not allow executable pages.
Code executable_copy(void const* code, std::size_t num_bytes) {
  auto* const pages = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc(); // NOLINT: the macro casts
  Code copy(pages, {num_bytes});
  std::copy_n(static_cast<std::byte const*>(code), num_bytes, static_cast<std::byte*>(pages));
  __builtin___clear_cache(static_cast<char*>(pages), static_cast<char*>(pages) + num_bytes); // instructions
  if (mprotect(pages, num_bytes, PROT_READ | PROT_EXEC) != 0) return nullptr;
  return copy;
}

/// Compiles a kernel. Returns null if LIBXSMM cannot compile for this processor, or the system does not allow executable pages.
Code compiled(Description const& d) {
  libxsmm_descriptor_blob memory;
  auto const flags = d.transpose_a == Transpose::yes ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
  auto const* const gemm =
      libxsmm_sgemm_descriptor_init(&memory, d.n, d.m, d.k, d.stride_b, d.stride_a, d.stride_c, 1, d.beta,
                                    flags, LIBXSMM_GEMM_PREFETCH_NONE);
  if (gemm == nullptr) return nullptr;
  std::vector<std::byte> code(longest_code);
  constexpr auto binary = 2U;
  libxsmm_generated_code generated{};
  generated.generated_code = code.data();
  generated.buffer_size = static_cast<unsigned>(code.size());
  generated.code_type = binary;
  generated.arch = static_cast<unsigned>(libxsmm_cpuid());
  libxsmm_generator_gemm_kernel(&generated, gemm);
  return generated.last_error == 0 ? executable_copy(code.data(), generated.code_size) : nullptr;
}

/// Returns the kernel, which is compiled at the first call. Null if it cannot be compiled.
XsmmKernel kernel_of(Description const& description) {
  thread_local std::map<Description, Code> kernels;
  auto found = kernels.find(description);
  if (found == kernels.end()) {
    if (kernels.size() >= most_xsmm_kernels) kernels.clear();
    found = kernels.emplace(description, compiled(description)).first;
  }
  return reinterpret_cast<XsmmKernel>(found->second.get()); // NOLINT: converts data to code
}

bool has_kernels() {
  constexpr libxsmm_blasint extent = 16;
  static bool const has =
      compiled({extent, extent, extent, extent, extent, extent, 0, Transpose::no}) != nullptr;
  return has;
}

/// Multiplies all pieces that for_each(work) passes to work(). Most pieces have the same extents, so the kernel is looked up only when
/// they change.
template<class ForEach>
void multiply_pieces(ForEach const& for_each) {
  XsmmKernel kernel = nullptr;
  std::tuple<std::int64_t, std::int64_t, float> last;
  for_each([&](DenseProduct<float> const& piece) {
    if (std::tuple const next{piece.extents.m, piece.extents.k, piece.beta};
        kernel == nullptr || next != last) {
      kernel = kernel_of(description_of(piece));
      ORTHANT_REQUIRE(kernel != nullptr, "LIBXSMM has no kernel for ", piece.extents.m, " x ",
                      piece.extents.n, " x ", piece.extents.k);
      last = next;
    }
    kernel(piece.b.data, piece.a.data, piece.c.data);
  });
}

/// C := A op(B) + beta C, by kernels of a few rows each.
void multiply_rows(DenseProduct<float> const& p) {
  auto product = p;
  product.transpose_b = Transpose::no;
  if (p.transpose_b == Transpose::yes) product.b = detail::transposed(p.b);
  auto const num_rows = p.extents.n * p.extents.k <= small_shared ? few_rows : many_rows;
  multiply_pieces([&](auto const& run) { detail::for_each_piece_of_rows(product, num_rows, run); });
}

/// C := A^T B + beta C, by kernels of num_terms terms each.
void multiply_terms(DenseProduct<float> const& p) {
  detail::add_pieces_of_terms(p, longest_xsmm_sum, [](DenseProduct<float> const& sum) {
    multiply_pieces([&](auto const& run) { detail::for_each_piece_of_terms(sum, num_terms, run); });
  });
}

class Libxsmm : public DenseLibrary {
 public:
  [[nodiscard]] std::string_view name() const override { return "libxsmm"; }
  [[nodiscard]] std::string version() const override {
    // libxsmm_get_target_arch() is not used because it would create the library's registry.
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
