#pragma once
// SPDX-License-Identifier: Apache-2.0

// Causal attention through the vendor's library, in bf16 with sums in fp32, on raw device pointers and a stream: cuDNN's fused
// attention (vendor_attention_cudnn.cpp), which is looked for when it is first needed, or nothing. Needs neither Kokkos nor MPI.
#include "runtime/numbers/formats.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>
#include <memory>

namespace orthant::pmm {

/// For kernels, too. What this rank has: `num_sequences` whole sequences, one after another, of `sequence` tokens each.
struct AttentionShape {
  std::int64_t num_sequences = 0;
  std::int64_t sequence = 0;
  std::int64_t num_heads = 0;    // of queries
  std::int64_t num_kv_heads = 0; // of keys and values; divides num_heads
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
  /// Numbers of log_sum_exp: [tokens x heads].
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t num_row_numbers() const {
    return num_tokens() * num_heads;
  }
};

} // namespace orthant::pmm

namespace orthant::pmm::vendor {

/// Rows of tokens: `qkv` [tokens x (query_columns + 2 key_columns)], queries, keys and values side by side; `out` [tokens x
/// query_columns]; log_sum_exp [tokens x heads], in the library's order. `gradients` is laid out as `qkv`.
struct FusedAttentionNumbers {
  runtime::Bf16Number* qkv = nullptr;
  runtime::Bf16Number* out = nullptr;
  float* log_sum_exp = nullptr;             // at a multiple of 16 bytes
  runtime::Bf16Number* d_out = nullptr;     // backward
  runtime::Bf16Number* gradients = nullptr; // backward
};

/// Both passes for one shape and stream. One host thread at a time.
class FusedAttention {
 public:
  /// Null where there is no library here, none for this shape, or no memory for its workspace. Takes up to seconds, and allocates num_bytes().
  [[nodiscard]] static std::unique_ptr<FusedAttention> create(void* stream, AttentionShape const& shape);

  virtual ~FusedAttention() = default;
  /// Of the library's workspace on the device.
  [[nodiscard]] virtual std::int64_t num_bytes() const = 0;
  /// Enqueue on the stream; neither wait nor allocate. The backward pass gives the same bits every time. Throw Error where
  /// the library fails.
  virtual void forward(FusedAttentionNumbers const& numbers) = 0;
  virtual void backward(FusedAttentionNumbers const& numbers) = 0;
};

} // namespace orthant::pmm::vendor
