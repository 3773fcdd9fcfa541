#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a fixed block's terms are multiplied by, in the order of its non-zeros:
//
//   w_k := v_k s_{j_k}        v_k = 1 for a pattern
//
// A kernel that reads s itself reads a second array at random places, beside the rows of B: at 32 to 64 columns that
// takes an eighth of its time (Zen 4). Weights are one stream more. They are the products that the kernel would have formed, so
// the bits of C are the same.

#include "pmm/kernels/host_parts.hpp"
#include "pmm/spmm/local_spmm.hpp"

#include <cstdint>

namespace orthant::pmm::detail {

/// Shared by the copies of a LocalSpmm.
template<class T>
class HostWeights {
 public:
  /// Of a block with column scales and one group of rows. Does nothing a second time, and fences exec the first time.
  void make(DefaultExec const& exec, SparseBlock<T> const& block) {
    auto const num_nonzeros = static_cast<std::size_t>(block.csr.num_nonzeros());
    if (values_.extent(0) == num_nonzeros) return;
    values_ =
        Vector<T>(Kokkos::view_alloc("orthant::pmm::weights", Kokkos::WithoutInitializing), num_nonzeros);
    auto const* const columns = block.csr.columns.data();
    auto const* const values = block.csr.values.extent(0) == 0 ? nullptr : block.csr.values.data();
    auto const* const scale = block.column_scale.data();
    auto* const weights = values_.data();
    for_each_part(exec, "orthant::pmm::weights", block.csr.num_nonzeros(),
                  [=](std::int64_t begin, std::int64_t end) {
                    for (auto k = begin; k < end; ++k)
                      weights[k] = (values == nullptr ? T{1} : values[k]) * scale[columns[k]];
                  });
    runtime::compat::fence(exec, "orthant::pmm::weights");
  }

  /// Empty if they have not been made.
  [[nodiscard]] Vector<T> const& values() const { return values_; }

 private:
  Vector<T> values_;
};

} // namespace orthant::pmm::detail
