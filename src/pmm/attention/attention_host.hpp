#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Causal attention on host processors: raw pointers, compiled once for each instruction set (attention.hpp has the
// formulas). Queries come in blocks of 32, keys in blocks of 128. The products of a pair of blocks are products of small
// matrices, A(i, k) times rows of B, whose result stays in registers: keys and values that are summed over the head are
// transposed first, once per sequence and head. Exponentials of single precision are those of exponential_host_kernel.inc.
//
// The order of additions depends on the shape alone, not on the number of threads. Products and sums may be contracted, so
// instruction sets agree to rounding, as those of a library for dense products do.

#include "pmm/vendor/vendor_attention.hpp"
#include "runtime/instruction_sets.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::pmm::host_attention {

/// A matrix whose rows are `stride` numbers apart.
template<class T>
struct Rows {
  T* data = nullptr;
  std::int64_t stride = 0;
};

template<class T>
struct HostAttention {
  AttentionShape shape;
  T scale = 1;
  Rows<T const> q, k, v;
  Rows<T> out;              // read by the backward pass
  T* log_sum_exp = nullptr; // the same
  Rows<T const> d_out;
  Rows<T> dq, dk, dv;
  // Dropout. A number is dropped if its word is at most last_dropped.
  std::int64_t const* token_ids = nullptr; // null: none
  std::int64_t first_head = 0;
  std::int64_t all_heads = 0;
  std::uint64_t key = 0;
  std::uint32_t last_dropped = 0;
  T keep_scale = 1;
};

template<class T>
struct HostAttentionKernels {
  /// Pairs of a sequence and a head of queries, [begin, end), heads fastest. `scratch`: memory that begins at a cache line.
  void (*forward)(HostAttention<T> const&, std::int64_t begin, std::int64_t end, T* scratch);
  /// Pairs of a sequence and a head of keys.
  void (*backward)(HostAttention<T> const&, std::int64_t begin, std::int64_t end, T* scratch);
  /// Numbers of scratch that either needs.
  std::size_t (*forward_scratch)(AttentionShape const&);
  std::size_t (*backward_scratch)(AttentionShape const&);
};

/// Those of one instruction set.
template<runtime::InstructionSet set, class T>
[[nodiscard]] HostAttentionKernels<T> attention_kernels();

/// Those of every instruction set of this build that the processor has, the widest last.
template<class T>
[[nodiscard]] std::vector<HostAttentionKernels<T>> supported_attention_kernels() {
  return runtime::for_supported_sets([](auto set) { return attention_kernels<set.value, T>(); });
}

} // namespace orthant::pmm::host_attention
