#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Causal attention as its definition reads, in double: whole rows of probabilities, no blocks. And one attention of the kernels beside it.

#include "pmm/attention/attention.hpp"
#include "pmm/attention/attention_backward_device.hpp"
#include "support/dist_checks.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <type_traits>
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

  /// mask(token, head, key) multiplies a probability; key is the place in the sequence or document. `positions`: of the tokens in their
  /// documents; empty: a sequence is one.
  template<class Mask>
  PlainAttention(pmm::AttentionShape const& shape, PlainRows const& q, PlainRows const& k, PlainRows const& v,
                 PlainRows const& d_out, Mask const& mask, std::vector<std::int64_t> const& positions = {})
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
        auto const first = positions.empty() ? i / shape.sequence * shape.sequence
                                             : i - positions[static_cast<std::size_t>(i)];
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

/// One attention with its arrays in the kernels' memory. Queries, keys and values are the columns of one matrix; so are their
/// gradients, and a column that belongs to nobody stands behind each part.
template<class T>
struct AttentionCase {
  pmm::AttentionShape shape;
  std::int64_t width;
  PlainRows q, k, v, d_out;
  runtime::Vector<T> numbers, gradient_numbers, out_numbers, d_out_numbers, log_sum_exp, row_terms;
  pmm::AttentionOperands<T> operands, gradients;
  pmm::Panel<T> out, d_out_panel;
  pmm::AttentionDropout dropout;
  std::vector<std::int64_t> positions; // in documents; empty: a sequence is one
  runtime::PassLedger passes;
  runtime::DefaultExec exec;

  explicit AttentionCase(pmm::AttentionShape const& of, double size = 1)
      : AttentionCase(of, [size](std::uint64_t seed, std::int64_t i, std::int64_t j) {
          return size * small_real(seed, i, j);
        }) {}

  template<class Number>
  requires std::is_invocable_v<Number, std::uint64_t, std::int64_t, std::int64_t>
  AttentionCase(pmm::AttentionShape const& of, Number const& number)
      : shape(of),
        width(of.query_columns() + 2 * of.key_columns() + 3),
        q(of.num_tokens(), of.query_columns()),
        k(of.num_tokens(), of.key_columns()),
        v(of.num_tokens(), of.key_columns()),
        d_out(of.num_tokens(), of.query_columns()) {
    std::uint64_t seed = 1;
    for (auto* rows : {&q, &k, &v, &d_out}) {
      for (std::int64_t i = 0; i < shape.num_tokens(); ++i)
        for (std::int64_t j = 0; j < rows->columns; ++j)
          (*rows)(i, j) = static_cast<double>(static_cast<T>(number(seed, i, j)));
      ++seed;
    }
    auto const tokens = shape.num_tokens();
    std::vector<T> all(static_cast<std::size_t>(tokens * width), stain);
    put(all, q, width, 0);
    put(all, k, width, q.columns + 1);
    put(all, v, width, q.columns + k.columns + 2);
    numbers = device_copy(all);
    gradient_numbers = device_copy(std::vector<T>(all.size(), stain));
    std::vector<T> of_out(static_cast<std::size_t>(tokens * (q.columns + 1)), stain);
    out_numbers = device_copy(of_out);
    put(of_out, d_out, q.columns + 1, 0);
    d_out_numbers = device_copy(of_out);
    auto const rows = static_cast<std::size_t>(shape.num_row_numbers());
    log_sum_exp = device_copy(std::vector<T>(rows, stain));
    row_terms = device_copy(std::vector<T>(rows, stain));
    operands = panels(numbers);
    gradients = panels(gradient_numbers);
    out = panel(out_numbers, q.columns + 1, 0, q.columns);
    d_out_panel = panel(d_out_numbers, q.columns + 1, 0, q.columns);
  }

  void run() {
    auto const in_documents = device_copy(positions);
    attention_forward(exec, passes, shape, operands, out, log_sum_exp, dropout, in_documents);
    attention_backward(exec, passes, shape, operands, out, log_sum_exp, d_out_panel, gradients, row_terms,
                       dropout, in_documents);
  }
  /// The kernels of devices, in blocks of `tile` rows.
  void run_on_device(int tile) {
    auto const in_documents = device_copy(positions);
    pmm::detail::AttentionTask<T> const task(shape, operands, log_sum_exp, dropout,
                                             positions.empty() ? nullptr : in_documents.data(), tile);
    pmm::detail::attend_on_device(exec, task, out);
    pmm::detail::attend_backward_on_device(exec, task, out, d_out_panel, gradients, row_terms);
  }

  /// The mask that dropout should apply, from the definition of the stream.
  [[nodiscard]] double mask(std::int64_t token, std::int64_t head, std::int64_t key) const {
    if (dropout.probability == 0) return 1;
    auto const row = host_copy(dropout.token_ids)(static_cast<std::size_t>(token)) * dropout.num_heads +
                     dropout.first_head + head;
    return dropout.stream.bernoulli(dropout.probability, static_cast<std::uint64_t>(row),
                                    static_cast<std::uint64_t>(key))
               ? 0
               : 1 / (1 - dropout.probability);
  }

  /// Every result is within the bound of the definition's, and nothing else was written.
  void expect_near_definition(double bound, std::string const& what) const {
    PlainAttention const plain(
        shape, q, k, v, d_out, [this](auto token, auto head, auto key) { return mask(token, head, key); },
        positions);
    expect_near(out_numbers, q.columns + 1, 0, plain.out, bound, what + " out");
    expect_near(log_sum_exp, shape.num_heads, 0, plain.log_sum_exp, bound, what + " log_sum_exp");
    expect_near(gradient_numbers, width, 0, plain.dq, bound, what + " dq");
    expect_near(gradient_numbers, width, q.columns + 1, plain.dk, bound, what + " dk");
    expect_near(gradient_numbers, width, q.columns + k.columns + 2, plain.dv, bound, what + " dv");
    auto const gradient = host_copy(gradient_numbers);
    auto const result = host_copy(out_numbers);
    for (std::int64_t i = 0; i < shape.num_tokens(); ++i) {
      for (auto const column : {q.columns, q.columns + k.columns + 1, width - 1})
        EXPECT_EQ(gradient(static_cast<std::size_t>(i * width + column)), stain) << what;
      EXPECT_EQ(result(static_cast<std::size_t>(i * (q.columns + 1) + q.columns)), stain) << what;
    }
  }

  [[nodiscard]] double number(runtime::Vector<T> const& from, std::int64_t stride, std::int64_t i,
                              std::int64_t j) const {
    return static_cast<double>(host_copy(from)(static_cast<std::size_t>(i * stride + j)));
  }

 private:
  static constexpr T stain = 77;

  static void put(std::vector<T>& to, PlainRows const& from, std::int64_t stride, std::int64_t first) {
    for (std::size_t at = 0; at < from.numbers.size(); ++at) {
      auto const i = static_cast<std::int64_t>(at) / from.columns;
      auto const j = static_cast<std::int64_t>(at) % from.columns;
      to[static_cast<std::size_t>(i * stride + first + j)] = static_cast<T>(from.numbers[at]);
    }
  }
  [[nodiscard]] pmm::Panel<T> panel(runtime::Vector<T> const& memory, std::int64_t stride, std::int64_t first,
                                    std::int64_t columns) const {
    pmm::Panel<T> result;
    result.data = memory.data() + first;
    result.num_rows = shape.num_tokens();
    result.num_columns = columns;
    result.row_stride = stride;
    return result;
  }
  [[nodiscard]] pmm::AttentionOperands<T> panels(runtime::Vector<T> const& memory) const {
    return {panel(memory, width, 0, q.columns), panel(memory, width, q.columns + 1, k.columns),
            panel(memory, width, q.columns + k.columns + 2, k.columns)};
  }
  void expect_near(runtime::Vector<T> const& actual, std::int64_t stride, std::int64_t first,
                   PlainRows const& expected, double bound, std::string const& what) const {
    auto const host = host_copy(actual);
    auto worst = 0.0;
    for (std::size_t at = 0; at < expected.numbers.size(); ++at) {
      auto const i = static_cast<std::int64_t>(at) / expected.columns;
      auto const j = static_cast<std::int64_t>(at) % expected.columns;
      auto const distance =
          static_cast<double>(host(static_cast<std::size_t>(i * stride + first + j))) - expected.numbers[at];
      worst = std::max(worst, std::isnan(distance) ? HUGE_VAL : std::abs(distance));
    }
    EXPECT_LE(worst, bound) << what;
  }
};

} // namespace orthant::testing
