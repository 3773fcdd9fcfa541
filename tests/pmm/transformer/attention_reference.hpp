#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Causal attention as its definition reads, in double: whole rows of probabilities, no blocks.

#include "pmm/vendor/vendor_attention.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::testing {

/// Row-major [tokens x columns].
struct PlainRows {
  std::int64_t columns = 0;
  std::vector<double> numbers;

  PlainRows(std::int64_t num_rows, std::int64_t num_columns)
      : columns(num_columns),
        numbers(static_cast<std::size_t>(num_rows * num_columns)) {}
  [[nodiscard]] double& operator()(std::int64_t i, std::int64_t j) {
    return numbers[static_cast<std::size_t>(i * columns + j)];
  }
  [[nodiscard]] double operator()(std::int64_t i, std::int64_t j) const {
    return numbers[static_cast<std::size_t>(i * columns + j)];
  }
};

struct PlainAttention {
  PlainRows out, log_sum_exp, dq, dk, dv;

  /// mask(token, head, key) multiplies a probability; key is the place in the sequence.
  template<class Mask>
  PlainAttention(pmm::AttentionShape const& shape, PlainRows const& q, PlainRows const& k, PlainRows const& v,
                 PlainRows const& d_out, Mask const& mask)
      : out(shape.num_tokens(), shape.query_columns()),
        log_sum_exp(shape.num_tokens(), shape.num_heads),
        dq(shape.num_tokens(), shape.query_columns()),
        dk(shape.num_tokens(), shape.key_columns()),
        dv(shape.num_tokens(), shape.key_columns()) {
    auto const d = shape.head_dim;
    auto const scale = 1 / std::sqrt(static_cast<double>(d));
    auto const inner = [&](PlainRows const& x, std::int64_t i, std::int64_t x_head, PlainRows const& y,
                           std::int64_t j, std::int64_t y_head) {
      auto sum = 0.0;
      for (std::int64_t c = 0; c < d; ++c)
        sum += x(i, x_head * d + c) * y(j, y_head * d + c);
      return sum;
    };
    for (std::int64_t i = 0; i < shape.num_tokens(); ++i)
      for (std::int64_t h = 0; h < shape.num_heads; ++h) {
        auto const kv = h / (shape.num_heads / shape.num_kv_heads);
        auto const first = i / shape.sequence * shape.sequence;
        auto sum = 0.0;
        for (auto j = first; j <= i; ++j)
          sum += std::exp(scale * inner(q, i, h, k, j, kv));
        log_sum_exp(i, h) = std::log(sum);
        for (auto j = first; j <= i; ++j)
          for (std::int64_t c = 0; c < d; ++c)
            out(i, h * d + c) +=
                mask(i, h, j - first) * std::exp(scale * inner(q, i, h, k, j, kv)) / sum * v(j, kv * d + c);
        auto const row_term = inner(d_out, i, h, out, i, h);
        for (auto j = first; j <= i; ++j) {
          auto const p = std::exp(scale * inner(q, i, h, k, j, kv)) / sum;
          auto const ds = scale * p * (mask(i, h, j - first) * inner(d_out, i, h, v, j, kv) - row_term);
          for (std::int64_t c = 0; c < d; ++c) {
            dq(i, h * d + c) += ds * k(j, kv * d + c);
            dk(j, kv * d + c) += ds * q(i, h * d + c);
            dv(j, kv * d + c) += mask(i, h, j - first) * p * d_out(i, h * d + c);
          }
        }
      }
  }
};

} // namespace orthant::testing
