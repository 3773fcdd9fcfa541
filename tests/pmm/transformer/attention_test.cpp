// SPDX-License-Identifier: Apache-2.0
//
// Causal attention beside its definition in double, finite differences, and figures of PyTorch 2.15 in fp64; by blocks on
// host processors, and with the kernels of devices.
#include "attention_reference.hpp"
#include "pmm/attention/attention.hpp"
#include "pmm/attention/attention_backward_device.hpp"
#include "pmm/attention/attention_host.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/error.hpp"
#include "support/dist_checks.hpp"

#include <array>
#include <gtest/gtest.h>
#include <numeric>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

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

/// Documents of 1 to 170 tokens that begin and end on both sides of the blocks of 8, 32 and 128, and a sequence of one document.
std::vector<std::int64_t> positions_of(AttentionShape const& shape) {
  std::vector<std::int64_t> positions;
  for (std::int64_t s = 0; s < shape.num_sequences; ++s) {
    std::int64_t left = shape.sequence;
    for (std::uint64_t document = 0; left > 0; ++document) {
      constexpr std::array<std::int64_t, 8> lengths{1, 31, 33, 7, 170, 8, 1, 64};
      auto const length = s == 0 ? shape.sequence
                                 : std::min(left, lengths.at((document + static_cast<std::uint64_t>(s)) % 8));
      for (std::int64_t t = 0; t < length; ++t)
        positions.push_back(t);
      left -= length;
    }
  }
  return positions;
}

TYPED_TEST(AttentionTest, StaysWithinDocuments) {
  for (auto const& shape :
       {AttentionShape{3, 33, 2, 1, 5}, AttentionShape{9, 70, 4, 2, 16}, AttentionShape{4, 300, 2, 2, 8}})
    for (auto const probability : {0.0, 0.3})
      for (int const tile : {0, 4, 32}) { // 0: the kernels of the processor, or those that a device chooses
        AttentionCase<TypeParam> attention(shape);
        attention.positions = positions_of(shape);
        if (probability > 0) {
          std::vector<std::int64_t> ids(static_cast<std::size_t>(shape.num_tokens()));
          std::iota(ids.begin(), ids.end(), std::int64_t{500});
          attention.dropout = {probability, {5, runtime::Purpose::dropout, 2, 7}, device_copy(ids), 3, 8};
        }
        if (tile == 0)
          attention.run();
        else
          attention.run_on_device(
              pmm::runs_on_host ? tile
                                : std::min(tile, pmm::detail::attention_tile<TypeParam>(shape.head_dim)));
        attention.expect_near_definition(4 * bound_of<TypeParam>,
                                         text_of(shape) + ", tile " + std::to_string(tile));
      }
}

/// A document has the same bits in any place of a sequence, as a sequence of its own.
TEST(Attention, DocumentsHaveTheBitsOfSequences) {
  AttentionShape const packed{1, 90, 2, 1, 6}, alone{3, 30, 2, 1, 6};
  AttentionCase<double> one(packed), other(alone);
  for (std::int64_t i = 0; i < 90; ++i)
    one.positions.push_back(i % 30);
  one.run();
  other.run();
  for (auto const& [found, expected] : {std::pair(one.out_numbers, other.out_numbers),
                                        std::pair(one.gradient_numbers, other.gradient_numbers),
                                        std::pair(one.log_sum_exp, other.log_sum_exp)})
    for (std::size_t at = 0; at < found.extent(0); ++at)
      EXPECT_EQ(host_copy(found)(at), host_copy(expected)(at)) << at;
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
  attention.positions = {0, 1, 2};
  EXPECT_THROW(attention.run(), runtime::Error);
  attention.dropout.probability = 0.5; // and no ids
  EXPECT_THROW(forward({1, 4, 4, 2, 3}), runtime::Error);
  attention.dropout.probability = 1;
  EXPECT_THROW(forward({1, 4, 4, 2, 3}), runtime::Error);
}

} // namespace
} // namespace orthant::testing
