#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sparse product of a host on raw pointers: the interface of the files that are compiled for one instruction set each.

#include "runtime/instruction_sets.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::pmm::detail {

/// Prefetch of the next rows of B: none, only into the L1 cache (near), or first into the L2 and then into the L1 cache.
enum class Prefetch : std::uint8_t { none, near, far_and_near };

/// Arguments of a product. Sums are in T. The numbers of B are T, or 16-bit numbers that are widened when they are loaded.
template<class T, class B = T>
struct HostSpmm {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  std::int64_t const* row_offsets = nullptr;
  std::int32_t const* columns = nullptr;
  T const* values = nullptr;                  // null if all are 1
  T const* row_scale = nullptr;               // null if all are 1
  T const* column_scale = nullptr;            // null if all are 1
  std::int8_t const* row_groups = nullptr;    // null if there is one group
  std::int32_t const* self_columns = nullptr; // null if there are no separate self loops
  T const* self_scale = nullptr;
  B const* b = nullptr;
  std::int64_t b_stride = 0;
  T* c = nullptr;
  std::int64_t c_stride = 0;
  std::size_t width = 0;
  Prefetch prefetch = Prefetch::none;
  B* rounded_c = nullptr; // used instead of c if not null: C in the 16-bit format of B
};

/// Kernel that computes rows [begin, end) of the product.
template<class T, class B = T>
using HostSpmmRows = void (*)(HostSpmm<T, B> const&, std::int64_t begin, std::int64_t end);

/// Kernel of one instruction set. T and B are both float, both double, or float and a 16-bit format.
template<runtime::InstructionSet set, class T, class B = T>
[[nodiscard]] HostSpmmRows<T, B> spmm_rows();

/// Kernels of each instruction set of this build that the processor supports, the widest last.
template<class T, class B = T>
[[nodiscard]] std::vector<HostSpmmRows<T, B>> supported_spmm_rows() {
  return runtime::for_supported_sets([](auto set) { return spmm_rows<set.value, T, B>(); });
}

} // namespace orthant::pmm::detail
