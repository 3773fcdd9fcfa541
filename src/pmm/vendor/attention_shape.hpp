#pragma once
// SPDX-License-Identifier: Apache-2.0

#include "runtime/numbers/philox.hpp"

#include <cstdint>

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
