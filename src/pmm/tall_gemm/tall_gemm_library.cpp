// SPDX-License-Identifier: Apache-2.0
//
// DenseLibrary of the kernels of tall_gemm_host.hpp, for fp32. On two cores at the same time they reach 0.82 to 0.96 of the rate of a loop
// of multiply-adds on a Zen 5, where oneDNN 2.6.3 reaches 0.65 to 0.88, and 0.83 to 0.91 on a Zen 4, where LIBXSMM 1.17 reaches 0.69 to
// 0.90 (`bench gemm --tune`; GFLOP/s of each shape in gemm/gemm_default_table.cpp).
#include "pmm/gemm/dense_library.hpp"
#include "pmm/gemm/gemm_choice.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "pmm/tall_gemm/tall_gemm_host.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace orthant::pmm {
namespace {

using host_gemm::padded;
using runtime::DefaultExec;

// The part of op(B) or of the sums that all rows of the tall operand use stays in the L2 cache: at most 2^17 numbers.
constexpr auto most_inner = std::int64_t{1024}; // terms of a sum
constexpr auto columns_per_piece = std::int64_t{128};
constexpr auto widest_sums = std::int64_t{512};
constexpr auto highest_sums = std::int64_t{256};
// A long sum is divided into parts for the threads. The number of parts does not depend on the number of threads, so the result has the
// same bits for any number.
constexpr auto terms_per_part = std::int64_t{8192};
constexpr auto most_parts = std::int64_t{16};

host_gemm::Rows rows_of(Panel<float> const& panel) {
  return {panel.data, panel.row_stride};
}

class TallGemm : public DenseLibrary {
 public:
  explicit TallGemm(host_gemm::TallKernels const& kernels) : kernels_(kernels) {}

  [[nodiscard]] std::string_view name() const override { return orthant_name; }
  [[nodiscard]] std::string version() const override { return fmt::format("Orthant ({})", kernels_.vectors); }
  using DenseLibrary::multiply;
  bool multiply(DenseProduct<float> const& p) const override {
    auto const is_sum = p.transpose_a == Transpose::yes;
    if (p.alpha != 1 || (p.beta != 0 && p.beta != 1) || (is_sum && p.transpose_b == Transpose::yes))
      return false;
    if (is_sum)
      detail::for_each_piece_of_rows(p, highest_sums, [this](auto const& high) {
        detail::for_each_piece_of_columns(high, widest_sums, [this](auto const& piece) { sum_terms(piece); });
      });
    else
      detail::for_each_piece_of_terms(p, most_inner, [this](auto const& terms) {
        detail::for_each_piece_of_columns(terms, columns_per_piece * most_inner / terms.extents.k,
                                          [this](auto const& piece) { multiply_rows(piece); });
      });
    return true;
  }

 private:
  void multiply_rows(DenseProduct<float> const& p) const {
    auto const [m, n, k] = p.extents;
    auto* const packed = thread_memory<float>(static_cast<std::size_t>(k * padded(n)));
    kernels_.pack(rows_of(p.b), p.transpose_b == Transpose::yes, n, k, packed);
    host_gemm::TallProduct const product{rows_of(p.a), packed, rows_of(p.c), n, k, p.beta == 1};
    DefaultExec const exec;
    for_each_part(
        exec, "orthant::pmm::local_gemm/rows", m,
        [product, run = kernels_.multiply_rows](auto begin, auto end) { run(product, begin, end); });
    runtime::compat::fence(exec, "orthant::pmm::local_gemm/rows");
  }

  void sum_terms(DenseProduct<float> const& p) const {
    auto const [m, n, k] = p.extents;
    auto const num_parts = std::min((k + terms_per_part - 1) / terms_per_part, most_parts);
    auto const num_sums = padded(m) * padded(n);
    auto const part_size = num_sums + host_gemm::term_scratch;
    auto* const sums = thread_memory<float>(static_cast<std::size_t>(num_parts * part_size));
    DefaultExec const exec;
    Kokkos::parallel_for("orthant::pmm::local_gemm/terms",
                         Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, num_parts),
                         [=, sum = host_gemm::LongSum{rows_of(p.a), rows_of(p.b), sums, m, n},
                          run = kernels_.add_terms](std::int64_t part) {
                           auto mine = sum;
                           mine.sums += part * part_size;
                           std::fill_n(mine.sums, num_sums, 0.0F);
                           auto const terms = runtime::balanced_range(k, num_parts, part);
                           run(mine, terms.begin, terms.end, mine.sums + num_sums);
                         });
    runtime::compat::fence(exec, "orthant::pmm::local_gemm/terms");
    for (std::int64_t i = 0; i < m; ++i) {
      auto* const c = p.c.data + i * p.c.row_stride;
      auto* const all = sums + i * padded(n);
      for (std::int64_t part = 1; part < num_parts; ++part)
        for (std::int64_t j = 0; j < n; ++j)
          all[j] += all[part * part_size + j];
      for (std::int64_t j = 0; j < n; ++j)
        c[j] = p.beta == 1 ? c[j] + all[j] : all[j];
    }
  }

  host_gemm::TallKernels kernels_;
};

} // namespace

namespace detail {

DenseLibrary const* orthant_library() {
  static auto const kernels = host_gemm::supported_tall_kernels();
  if (kernels.empty()) return nullptr;
  static TallGemm const library(kernels.back());
  return &library;
}

} // namespace detail

} // namespace orthant::pmm
