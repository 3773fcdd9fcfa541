#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The host's sparse product as raw pointers: what the files compiled for one instruction set each share.

#include <cstddef>
#include <cstdint>

namespace orthant::pmm::detail {

template<class T>
struct HostSpmm {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  std::int64_t const* row_offsets = nullptr;
  std::int32_t const* columns = nullptr;
  T const* values = nullptr;                  // null: pattern-only
  T const* row_scale = nullptr;               // null: all 1
  T const* column_scale = nullptr;            // null: all 1
  std::int8_t const* row_groups = nullptr;    // null: one group
  std::int32_t const* self_columns = nullptr; // null: no self loops apart
  T const* self_scale = nullptr;
  T const* b = nullptr;
  std::int64_t b_stride = 0;
  T* c = nullptr;
  std::int64_t c_stride = 0;
  std::size_t width = 0;
  bool fetches_ahead = false; // prefetches rows of B that lie ahead
};

/// Rows [begin, end) of the product.
template<class T>
using HostSpmmRows = void (*)(HostSpmm<T> const&, std::int64_t begin, std::int64_t end);

void spmm_rows_baseline(HostSpmm<float> const& product, std::int64_t begin, std::int64_t end);
void spmm_rows_baseline(HostSpmm<double> const& product, std::int64_t begin, std::int64_t end);
void spmm_rows_avx2(HostSpmm<float> const& product, std::int64_t begin, std::int64_t end);
void spmm_rows_avx2(HostSpmm<double> const& product, std::int64_t begin, std::int64_t end);
void spmm_rows_avx512(HostSpmm<float> const& product, std::int64_t begin, std::int64_t end);
void spmm_rows_avx512(HostSpmm<double> const& product, std::int64_t begin, std::int64_t end);

/// The widest instruction set of this build that the processor has.
template<class T>
[[nodiscard]] HostSpmmRows<T> best_spmm_rows();

} // namespace orthant::pmm::detail
