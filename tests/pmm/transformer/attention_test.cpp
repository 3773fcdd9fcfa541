// SPDX-License-Identifier: Apache-2.0
//
// Causal attention beside its definition in double, finite differences, and figures of PyTorch 2.15 in fp64; by blocks on
// host processors, and with the kernels of devices.
#include "attention_reference.hpp"
#include "pmm/attention/attention.hpp"
#include "pmm/attention/attention_device.hpp"
#include "pmm/attention/attention_host.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/error.hpp"
#include "support/dist_checks.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

/// One attention with its arrays in the kernels' memory. Queries, keys and values are the columns of one matrix; so are their
/// gradients, and a column that belongs to nobody stands behind each part.
template<class T>
struct AttentionCase {
  AttentionShape shape;
  std::int64_t width;
  PlainRows q, k, v, d_out;
  Vector<T> numbers, gradient_numbers, out_numbers, d_out_numbers, log_sum_exp, row_terms;
  AttentionOperands<T> operands, gradients;
  Panel<T> out, d_out_panel;
  AttentionDropout dropout;
  runtime::PassLedger passes;
  DefaultExec exec;

  explicit AttentionCase(AttentionShape const& of, double size = 1)
      : AttentionCase(of, [size](std::uint64_t seed, std::int64_t i, std::int64_t j) {
          return size * small_real(seed, i, j);
        }) {}

  template<class Number>
  requires std::is_invocable_v<Number, std::uint64_t, std::int64_t, std::int64_t>
  AttentionCase(AttentionShape const& of, Number const& number)
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
    attention_forward(exec, passes, shape, operands, out, log_sum_exp, dropout);
    attention_backward(exec, passes, shape, operands, out, log_sum_exp, d_out_panel, gradients, row_terms,
                       dropout);
  }
  /// The kernels of devices, in blocks of `tile` rows.
  void run_on_device(int tile) {
    pmm::detail::AttentionTask<T> const task(shape, operands, log_sum_exp, dropout, tile);
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
    PlainAttention const plain(shape, q, k, v, d_out,
                               [this](auto token, auto head, auto key) { return mask(token, head, key); });
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

  [[nodiscard]] double number(Vector<T> const& from, std::int64_t stride, std::int64_t i,
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
  [[nodiscard]] Panel<T> panel(Vector<T> const& memory, std::int64_t stride, std::int64_t first,
                               std::int64_t columns) const {
    Panel<T> result;
    result.data = memory.data() + first;
    result.num_rows = shape.num_tokens();
    result.num_columns = columns;
    result.row_stride = stride;
    return result;
  }
  [[nodiscard]] AttentionOperands<T> panels(Vector<T> const& memory) const {
    return {panel(memory, width, 0, q.columns), panel(memory, width, q.columns + 1, k.columns),
            panel(memory, width, q.columns + k.columns + 2, k.columns)};
  }
  void expect_near(Vector<T> const& actual, std::int64_t stride, std::int64_t first,
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

/// Rounding of sums of up to 300 terms of size 1; gradients add up as many again.
template<class T>
constexpr double bound_of = std::is_same_v<T, float> ? 3e-5 : 3e-13;

std::string text_of(AttentionShape const& s) {
  return std::to_string(s.num_sequences) + " x " + std::to_string(s.sequence) + " tokens, " +
         std::to_string(s.num_heads) + "/" + std::to_string(s.num_kv_heads) + " heads of " +
         std::to_string(s.head_dim);
}

/// Sequences on both sides of the blocks of 8, 32 and 128; heads on both sides of vectors; MHA, GQA and MQA.
std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> result{{0, 5, 2, 1, 4}, {3, 1, 1, 1, 1}, {1, 1, 4, 2, 64}};
  for (std::int64_t const sequence : {2, 7, 8, 9, 31, 32, 33, 65, 128, 131, 260})
    for (std::int64_t const head_dim : {1, 3, 16, 64, 80}) {
      auto const heads = sequence % 3 + 1;
      result.push_back({2, sequence, heads, heads, head_dim});
      if (sequence < 100) result.push_back({1, sequence, 4, head_dim % 2 + 1, head_dim});
    }
  return result;
}

template<class T>
class AttentionTest : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionTest, Scalars);

TYPED_TEST(AttentionTest, EqualsTheDefinition) {
  for (auto const& shape : shapes()) {
    AttentionCase<TypeParam> attention(shape);
    attention.run();
    attention.expect_near_definition(bound_of<TypeParam>, text_of(shape));
  }
}

TYPED_TEST(AttentionTest, OfDevicesEqualsTheDefinition) {
  for (auto const& shape : shapes())
    if (shape.sequence < 70)
      for (int const tile : {4, 32}) {
        AttentionCase<TypeParam> attention(shape);
        attention.run_on_device(pmm::runs_on_host
                                    ? tile
                                    : std::min(tile, pmm::detail::attention_tile<TypeParam>(shape.head_dim)));
        attention.expect_near_definition(bound_of<TypeParam>, text_of(shape));
      }
}

TEST(Attention, BlocksFitInSharedMemory) {
  EXPECT_EQ(pmm::detail::attention_tile<float>(32), 32);
  constexpr auto of_kokkos = 16U + 8U * 256U; // per team, and per thread of the longest one
  for (std::int64_t head_dim = 1; head_dim <= 256; ++head_dim) {
    auto const tile = pmm::detail::attention_tile<float>(head_dim);
    EXPECT_GE(tile, 4) << head_dim;
    EXPECT_LE(pmm::detail::attention_scratch<float>(head_dim, tile) + of_kokkos, 48U * 1024) << head_dim;
    EXPECT_GE(pmm::detail::attention_tile<double>(head_dim), 2) << head_dim;
  }
}

TYPED_TEST(AttentionTest, DropsWhatTheStreamSays) {
  for (auto const sequence : {1, 9, 33, 140})
    for (auto const probability : {0.1, 0.7}) {
      AttentionShape const shape{2, sequence, 4, 2, 5};
      std::vector<std::int64_t> ids;
      for (std::int64_t i = 0; i < shape.num_tokens(); ++i)
        ids.push_back(1000 + 3 * i);
      for (bool const is_device : {false, true}) {
        AttentionCase<TypeParam> attention(shape);
        attention.dropout = {probability, {5, runtime::Purpose::dropout, 2, 7}, device_copy(ids), 6, 12};
        if (is_device)
          attention.run_on_device(16);
        else
          attention.run();
        attention.expect_near_definition(4 * bound_of<TypeParam>,
                                         is_device ? "dropout on a device" : "dropout");
      }
    }
}

/// Scores of some thousands overflow exp() unless the maximum is taken off.
TYPED_TEST(AttentionTest, LargeScoresDoNotOverflow) {
  AttentionShape const shape{1, 150, 1, 1, 16};
  AttentionCase<TypeParam> attention(shape, [](std::uint64_t seed, std::int64_t i, std::int64_t j) {
    return seed <= 2 ? 100 * small_real(seed, i, j) : small_real(seed, i, j);
  });
  attention.run();
  auto const sums = host_copy(attention.log_sum_exp);
  for (std::int64_t i = 0; i < shape.num_tokens(); ++i) {
    EXPECT_TRUE(std::isfinite(sums(static_cast<std::size_t>(i)))) << i;
    for (std::int64_t c = 0; c < 16; ++c) // a mean of values of at most 1
      EXPECT_LE(std::abs(attention.number(attention.out_numbers, 17, i, c)), 1.0001) << i;
  }
}

TEST(Attention, EveryInstructionSetEqualsTheOthersToRounding) {
  using namespace pmm::host_attention;
  AttentionShape const shape{2, 77, 3, 1, 24};
  AttentionCase<double> attention(shape);
  if (!pmm::runs_on_host) GTEST_SKIP() << "kernels of host processors";
  for (auto const& kernels : supported_attention_kernels<double>()) {
    HostAttention<double> task;
    task.shape = shape;
    task.scale = 1 / std::sqrt(24.0);
    auto const read = [](Panel<double> const& panel) {
      return Rows<double const>{panel.data, panel.row_stride};
    };
    auto const write = [](Panel<double> const& panel) { return Rows<double>{panel.data, panel.row_stride}; };
    task.q = read(attention.operands.q);
    task.k = read(attention.operands.k);
    task.v = read(attention.operands.v);
    task.out = write(attention.out);
    task.log_sum_exp = attention.log_sum_exp.data();
    task.d_out = read(attention.d_out_panel);
    task.dq = write(attention.gradients.q);
    task.dk = write(attention.gradients.k);
    task.dv = write(attention.gradients.v);
    auto const count = std::max(kernels.forward_scratch(shape), kernels.backward_scratch(shape));
    auto* const scratch = pmm::thread_memory<double>(count);
    for (std::int64_t item = 0; item < 6; ++item) // any parts
      kernels.forward(task, item, item + 1, scratch);
    kernels.backward(task, 0, 1, scratch);
    kernels.backward(task, 1, 2, scratch);
    attention.expect_near_definition(bound_of<double>, "an instruction set");
  }
}

/// d(sum out . d_out) by every number of q, k and v, by central differences.
TEST(Attention, GradientsAreThoseOfFiniteDifferences) {
  AttentionShape const shape{1, 6, 2, 1, 3};
  if (!pmm::runs_on_host) GTEST_SKIP() << "it writes single numbers of arrays, which a device holds";
  AttentionCase<double> attention(shape);
  attention.run();
  auto const loss = [&](AttentionCase<double>& of) {
    attention_forward(of.exec, of.passes, shape, of.operands, of.out, of.log_sum_exp);
    auto sum = 0.0;
    for (std::int64_t i = 0; i < shape.num_tokens(); ++i)
      for (std::int64_t j = 0; j < of.q.columns; ++j)
        sum += of.number(of.out_numbers, of.q.columns + 1, i, j) * of.d_out(i, j);
    return sum;
  };
  auto const step = 1e-5;
  auto const gradient = host_copy(attention.gradient_numbers);
  for (std::int64_t at = 0; at < shape.num_tokens() * attention.width; ++at) {
    auto const column = at % attention.width;
    if (column == 6 || column == 10 || column == 14) continue; // nobody's
    auto& number = attention.numbers(static_cast<std::size_t>(at));
    auto const old = number;
    number = old + step;
    auto const above = loss(attention);
    number = old - step;
    auto const below = loss(attention);
    number = old;
    EXPECT_NEAR((above - below) / (2 * step), gradient(static_cast<std::size_t>(at)), 1e-9) << at;
  }
}

/// scaled_dot_product_attention(is_causal=True, enable_gqa=True) of PyTorch 2.15 in fp64, and its autograd.
TEST(Attention, EqualsPyTorch) {
  AttentionShape const shape{2, 5, 4, 2, 6};
  AttentionCase<double> attention(shape, [](std::uint64_t seed, std::int64_t i, std::int64_t j) {
    auto const x = static_cast<double>(i);
    auto const y = static_cast<double>(j);
    return std::sin(0.37 * x + 0.91 * y + 0.05 * x * y + static_cast<double>(seed));
  });
  attention.run();
  struct Figure {
    std::int64_t i, j;
    double value;
  };
  auto const compare = [&](char const* name, Vector<double> const& numbers, std::int64_t stride,
                           std::int64_t first, std::vector<Figure> const& figures) {
    for (auto const& [i, j, value] : figures)
      EXPECT_NEAR(attention.number(numbers, stride, i, first + j), value, 1e-14)
          << name << " " << i << ", " << j;
  };
  compare("out", attention.out_numbers, 25, 0,
          {{0, 0, 0.14112000805986721},
           {3, 7, -0.8875349351222539},
           {4, 23, -0.13521416917864668},
           {9, 12, 0.71390980555382222}});
  compare("log_sum_exp", attention.log_sum_exp, 4, 0,
          {{0, 0, 0.71848288924721826},
           {3, 1, 2.3767513280692629},
           {4, 3, 2.0636405156172328},
           {9, 2, 1.5629855152206438}});
  compare(
      "dq", attention.gradient_numbers, attention.width, 0,
      {{0, 0, 0}, {3, 7, -0.20212927726806046}, {4, 23, -0.19201185094283654}, {9, 12, -0.4642793011000983}});
  compare("dk", attention.gradient_numbers, attention.width, 25,
          {{0, 0, -0.90873534678688039},
           {3, 7, 0.055073113283313845},
           {4, 11, 0.17752992198948458},
           {8, 4, -0.013867826478300829}});
  compare("dv", attention.gradient_numbers, attention.width, 38,
          {{0, 0, -3.2178407779709066},
           {3, 7, 0.69532873218674718},
           {4, 11, -0.3512987675935092},
           {8, 4, 0.59341843471687084}});
}

TEST(Attention, ListsWhatItCounts) {
  for (auto const draws : {false, true}) {
    AttentionCase<float> attention({3, 10, 4, 2, 8});
    if (draws)
      attention.dropout = {
          0.5, {1, runtime::Purpose::dropout}, Vector<std::int64_t>("orthant::testing::ids", 30), 0, 4};
    std::vector<runtime::LocalPass> counted;
    attention.passes.list = &counted;
    attention.run();
    StepPlan step({1, 1, 1, 1}, {}, sizeof(float));
    plan_attention_forward(step, attention.shape, draws);
    plan_attention_backward(step, attention.shape, draws);
    EXPECT_EQ(passes_of(step), counted);
    // 12 pairs of a sequence and a head, 55 pairs of tokens, 8 numbers, 2 products, 2 flops.
    EXPECT_EQ(counted[0].flops, 12 * 55 * 8 * 4);
    EXPECT_EQ(counted[1].flops, 12 * 55 * 8 * 10);
    EXPECT_EQ(counted[0].bytes_read, 30 * (32 + 16 + 16) * 4 + (draws ? 240 : 0));
    EXPECT_EQ(counted[0].bytes_written, 30 * (32 + 4) * 4);
  }
}

TEST(Attention, ShapesThatDoNotFitAreRefused) {
  AttentionCase<float> attention({1, 4, 4, 2, 3});
  auto const forward = [&](AttentionShape const& shape) {
    attention_forward(attention.exec, attention.passes, shape, attention.operands, attention.out,
                      attention.log_sum_exp, attention.dropout);
  };
  EXPECT_THROW(forward({1, 4, 4, 3, 3}), runtime::Error);
  EXPECT_THROW(forward({1, 5, 4, 2, 3}), runtime::Error);
  EXPECT_THROW(forward({1, 4, 4, 2, 4}), runtime::Error);
  EXPECT_THROW(forward({1, 4, 4, 0, 3}), runtime::Error);
  attention.dropout.probability = 0.5; // and no ids
  EXPECT_THROW(forward({1, 4, 4, 2, 3}), runtime::Error);
  attention.dropout.probability = 1;
  EXPECT_THROW(forward({1, 4, 4, 2, 3}), runtime::Error);
}

} // namespace
} // namespace orthant::testing
