#pragma once
// SPDX-License-Identifier: Apache-2.0

// Causal attention with the vendor's library, in bf16 with sums in fp32, on raw device pointers and a stream. Uses cuDNN's fused
// attention (vendor_attention_cudnn.cpp), which is loaded at the first use. Unavailable in other builds. Needs neither Kokkos nor MPI.
#include "runtime/numbers/formats.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>
#include <memory>

namespace orthant::pmm {

/// Tokens and heads of this rank: `num_sequences` whole sequences of `sequence` tokens each, one after another. Also usable in kernels.
struct AttentionShape {
  std::int64_t num_sequences = 0;
  std::int64_t sequence = 0;
  std::int64_t num_heads = 0;    // heads of queries
  std::int64_t num_kv_heads = 0; // heads of keys and values; divides num_heads
  std::int64_t head_dim = 0;

  bool operator==(AttentionShape const&) const = default;

  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t num_tokens() const {
    return num_sequences * sequence;
  }
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t query_columns() const { return num_heads * head_dim; }
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t key_columns() const {
    return num_kv_heads * head_dim;
  }
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t heads_per_kv_head() const {
    return num_heads / num_kv_heads;
  }
  /// Length of log_sum_exp: tokens x heads.
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t num_row_numbers() const {
    return num_tokens() * num_heads;
  }
};

} // namespace orthant::pmm

namespace orthant::pmm::vendor {

/// Operands of attention, with one row per token:
///
///   qkv          [tokens x (query_columns + 2 key_columns)], queries, keys and values side by side; gradients has the same layout
///   out          [tokens x query_columns]; d_out has the same layout
///   log_sum_exp  [tokens x heads], in the library's order
struct FusedAttentionNumbers {
  runtime::Bf16Number* qkv = nullptr;
  runtime::Bf16Number* out = nullptr;
  float* log_sum_exp = nullptr;             // aligned to 16 bytes
  runtime::Bf16Number* d_out = nullptr;     // backward
  runtime::Bf16Number* gradients = nullptr; // backward
};

/// Forward and backward pass for one shape and stream. Use from one host thread at a time.
class FusedAttention {
 public:
  /// Returns null if the library is not available, does not support this shape, or its workspace does not fit in memory. May take
  /// seconds. Allocates num_bytes() on the device.
  [[nodiscard]] static std::unique_ptr<FusedAttention> create(void* stream, AttentionShape const& shape);

  virtual ~FusedAttention() = default;
  /// Size of the library's workspace on the device.
  [[nodiscard]] virtual std::int64_t num_bytes() const = 0;
  /// forward() and backward() enqueue on the stream, and neither wait nor allocate. The backward pass is deterministic. Both throw Error
  /// if the library fails.
  virtual void forward(FusedAttentionNumbers const& numbers) = 0;
  virtual void backward(FusedAttentionNumbers const& numbers) = 0;
};

} // namespace orthant::pmm::vendor
