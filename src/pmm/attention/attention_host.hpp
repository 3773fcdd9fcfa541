#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Host kernels of causal attention on raw pointers, compiled once for each instruction set (equations: attention.hpp).
// Queries are processed in blocks of 32, keys in blocks of 128. The products of a pair of blocks are products of small matrices,
// whose results stay in registers. They read the right operand by rows, so keys and values that are summed over the columns of
// the head are transposed first, once per sequence and head. Exponentials in single precision come from
// exponential_host_kernel.inc.
//
// The order of additions depends only on the shape, not on the number of threads. Products and sums may be contracted to FMA,
// so the results of instruction sets agree only up to rounding.

#include "pmm/vendor/vendor_attention.hpp"
#include "runtime/instruction_sets.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::pmm::host_attention {

/// A matrix with a row stride of `stride` elements.
template<class T>
struct Rows {
  T* data = nullptr;
  std::int64_t stride = 0;
};

/// Arguments of the kernels. d_out, dq, dk and dv are used by the backward pass only.
template<class T>
struct HostAttention {
  AttentionShape shape;
  T scale = 1;
  Rows<T const> q, k, v;
  Rows<T> out;              // written by the forward pass, read by the backward pass
  T* log_sum_exp = nullptr; // written by the forward pass, read by the backward pass
  Rows<T const> d_out;
  Rows<T> dq, dk, dv;
  // Dropout: an element is dropped if its random word is at most last_dropped.
  std::int64_t const* token_ids = nullptr; // null without dropout
  std::int64_t first_head = 0;
  std::int64_t all_heads = 0;
  std::uint64_t key = 0;
  std::uint32_t last_dropped = 0;
  T keep_scale = 1;
  std::int64_t const* positions = nullptr; // [tokens] in their documents; null: a sequence is one document
};

template<class T>
struct HostAttentionKernels {
  /// Processes the pairs (sequence, query head) [begin, end); heads vary fastest. `scratch` must begin at a cache line.
  void (*forward)(HostAttention<T> const&, std::int64_t begin, std::int64_t end, T* scratch);
  /// Processes the pairs (sequence, key head) [begin, end); heads vary fastest. `scratch` must begin at a cache line.
  void (*backward)(HostAttention<T> const&, std::int64_t begin, std::int64_t end, T* scratch);
  /// Number of elements of scratch that forward(), or backward(), needs.
  std::size_t (*forward_scratch)(AttentionShape const&);
  std::size_t (*backward_scratch)(AttentionShape const&);
};

/// The kernels of one instruction set.
template<runtime::InstructionSet set, class T>
[[nodiscard]] HostAttentionKernels<T> attention_kernels();

/// The kernels of every instruction set of this build that the processor supports, the widest last.
template<class T>
[[nodiscard]] std::vector<HostAttentionKernels<T>> supported_attention_kernels() {
  return runtime::for_supported_sets([](auto set) { return attention_kernels<set.value, T>(); });
}

} // namespace orthant::pmm::host_attention
