#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Panels of a device copied to panels of other numbers or rows further apart.

#include "pmm/gemm/local_gemm.hpp"
#include "pmm/kernels/packs.hpp"

namespace orthant::pmm::detail {

/// to(i, j) := from(i, j), four columns a work item.
template<class From, class To>
struct CopyPanel {
  From const* from;
  To* to;
  std::int64_t from_stride, to_stride;
  std::int64_t num_columns;
  Divisor packs_per_row;

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    auto const row = packs_per_row.quotient(index);
    auto const column = (index - row * packs_per_row.value()) * pack_size;
    auto const count = num_columns - column;
    PackedArray<From const> const source(from + row * from_stride);
    PackedArray<To>(to + row * to_stride).store(column, count, source.load(column, count));
  }
};

/// As many rows and columns of both. Enqueues on exec; does not fence.
template<class From, class To>
void copy_panel(runtime::DefaultExec const& exec, char const* label, Panel<From> const& from,
                Panel<To> const& to) {
  auto const packs_per_row = (from.num_columns + pack_size - 1) / pack_size;
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, from.num_rows * packs_per_row),
      CopyPanel<From, To>{from.data, to.data, from.row_stride, to.row_stride, from.num_columns,
                          Divisor(packs_per_row)});
}

} // namespace orthant::pmm::detail
