// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

namespace orthant::pmm::detail {
namespace {
constexpr std::size_t vector_bytes = 64;
constexpr std::size_t max_vectors = 16;
} // namespace
} // namespace orthant::pmm::detail

#include "pmm/spmm/local_spmm_host_kernel.inc"

namespace orthant::pmm::detail {

void spmm_rows_avx512(HostSpmm<float> const& product, std::int64_t begin, std::int64_t end) {
  multiply_rows(product, begin, end);
}
void spmm_rows_avx512(HostSpmm<double> const& product, std::int64_t begin, std::int64_t end) {
  multiply_rows(product, begin, end);
}

} // namespace orthant::pmm::detail
