#pragma once
// SPDX-License-Identifier: Apache-2.0

// Causal attention with the vendor's library, in bf16 with sums in fp32, on raw device pointers and a stream. Uses cuDNN's fused
// attention (vendor_attention_cudnn.cpp), which is loaded at the first use. Unavailable in other builds. Needs neither Kokkos nor MPI.
#include "runtime/numbers/formats.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>
#include <memory>

namespace orthant::pmm {

/// The tokens of a sequence that this rank has, of C ranks that share it. The sequence is cut in 2 C equal chunks, and rank i has the chunks
/// i and 2 C - 1 - i, so that all ranks have the same number of pairs of a query and an earlier key ("zigzag"). A run is a range of
/// consecutive tokens: one of the two chunks, or the whole sequence if C = 1. Also usable in kernels.
struct SequencePart {
  std::int64_t length = 0;    // tokens of this rank; must be even if C > 1
  std::int64_t num_parts = 1; // C
  std::int64_t part = 0;      // i

  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t whole() const { return length * num_parts; }
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t num_runs() const { return num_parts > 1 ? 2 : 1; }
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t run_length() const { return length / num_runs(); }
  /// Place in the sequence of the first token of a run.
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t begin_of(std::int64_t run) const {
    return run_length() * (run == 0 ? part : 2 * num_parts - 1 - part);
  }
  /// Place in its sequence of token `t` of this rank.
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t place_of(std::int64_t t) const {
    return begin_of(t / run_length()) + t % run_length();
  }
  /// Number of the token of row `row`, if the rows are the tokens of sequences 0, 1, .. that this rank has.
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t token_of(std::int64_t row) const {
    return row / length * whole() + place_of(row % length);
  }
};

/// Tokens and heads of this rank: `num_sequences` sequences of `sequence` tokens each, one after another. The sequences are whole unless
/// several ranks share them (SequencePart). Queries are those of this rank's tokens, keys and values those of whole sequences. Also usable
/// in kernels.
struct AttentionShape {
  std::int64_t num_sequences = 0;
  std::int64_t sequence = 0;
  std::int64_t num_heads = 0;    // heads of queries
  std::int64_t num_kv_heads = 0; // heads of keys and values; divides num_heads
  std::int64_t head_dim = 0;
  std::int64_t num_parts = 1; // ranks that share the sequences
  std::int64_t part = 0;

  bool operator==(AttentionShape const&) const = default;

  [[nodiscard]] ORTHANT_FUNCTION constexpr SequencePart tokens() const { return {sequence, num_parts, part}; }
  /// Keys of a sequence, and of all sequences.
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t keys() const { return sequence * num_parts; }
  [[nodiscard]] ORTHANT_FUNCTION constexpr std::int64_t num_keys() const { return num_sequences * keys(); }

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
