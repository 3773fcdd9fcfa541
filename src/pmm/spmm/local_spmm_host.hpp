#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The host's sparse product as raw pointers: what the files compiled for one instruction set each share.

#include "runtime/instruction_sets.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::pmm::detail {

/// How rows of B that lie ahead are prefetched: into the first cache level only, or first into the second one.
enum class Prefetch : std::uint8_t { none, near, far_and_near };

/// Sums are in T; the numbers of B are T, or 16-bit numbers that are widened as they are loaded.
template<class T, class B = T>
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
  B const* b = nullptr;
  std::int64_t b_stride = 0;
  T* c = nullptr;
  std::int64_t c_stride = 0;
  std::size_t width = 0;
  Prefetch prefetch = Prefetch::none;
  B* rounded_c = nullptr; // with 16-bit numbers B: if not null, C is rounded to them, in place of c
};

/// Rows [begin, end) of the product.
template<class T, class B = T>
using HostSpmmRows = void (*)(HostSpmm<T, B> const&, std::int64_t begin, std::int64_t end);

/// The kernels of one instruction set: T and B are float, double, or float and a 16-bit number.
template<runtime::InstructionSet set, class T, class B = T>
[[nodiscard]] HostSpmmRows<T, B> spmm_rows();

/// Those of every instruction set of this build that the processor has, the widest last.
template<class T, class B = T>
[[nodiscard]] std::vector<HostSpmmRows<T, B>> supported_spmm_rows() {
  return runtime::for_supported_sets([](auto set) { return spmm_rows<set.value, T, B>(); });
}

} // namespace orthant::pmm::detail
