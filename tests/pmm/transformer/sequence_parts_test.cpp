// SPDX-License-Identifier: Apache-2.0
//
// Attention of sequences that C ranks share, each with the queries of two chunks: beside the definition on whole sequences, and to the bit
// beside one rank.
#include "pmm/attention/sequence_parts.hpp"

#include "attention_reference.hpp"

#include <gtest/gtest.h>
#include <numeric>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

TEST(SequencePart, PartsCoverASequenceInChunksFromBothEnds) {
  for (std::int64_t const num_parts : {1, 2, 3, 5}) {
    std::vector<int> covered(static_cast<std::size_t>(8 * num_parts), 0);
    std::int64_t pairs = 0;
    for (std::int64_t part = 0; part < num_parts; ++part) {
      SequencePart const tokens{8, num_parts, part};
      EXPECT_EQ(tokens.whole(), 8 * num_parts);
      std::int64_t of_part = 0;
      for (std::int64_t t = 0; t < 8; ++t) {
        ++covered[static_cast<std::size_t>(tokens.place_of(t))];
        of_part += tokens.place_of(t) + 1;
        EXPECT_EQ(tokens.token_of(2 * 8 + t), 2 * tokens.whole() + tokens.place_of(t));
      }
      if (part > 0) {
        EXPECT_EQ(of_part, pairs) << "queries and earlier keys are even";
      }
      pairs = of_part;
    }
    EXPECT_EQ(covered, std::vector<int>(covered.size(), 1));
  }
  SequencePart const first{4, 3, 0};
  EXPECT_EQ(first.begin_of(1), 10);
}

template<class T>
Panel<T> panel_of(runtime::Vector<T> const& numbers, std::int64_t width) {
  return as_matrix(numbers, static_cast<std::int64_t>(numbers.extent(0)) / width, width);
}

template<class T>
std::vector<T> numbers_of(runtime::Vector<T> const& numbers) {
  auto const host = host_copy(numbers);
  return {host.data(), host.data() + host.extent(0)};
}

/// What the parts of the ranks are together, by the tokens of whole sequences.
template<class T>
struct Together {
  std::vector<T> out, log_sum_exp, dq, dk, dv;
};

enum class Kernels : std::uint8_t { chosen, of_devices };

/// Attention of each part of the case's sequences; keys and values have a stride of their own.
template<class T>
Together<T> attend_in_parts(AttentionCase<T> const& whole, std::int64_t num_parts, Kernels kernels,
                            int tile = 0) {
  auto const columns = whole.q.columns;
  auto const width = whole.k.columns;
  auto const num_keys = whole.shape.num_tokens();
  auto const heads = whole.shape.num_heads;
  std::vector<T> keys_and_values;
  for (std::int64_t i = 0; i < num_keys; ++i)
    for (auto const* const rows : {&whole.k, &whole.v})
      for (std::int64_t j = 0; j < width; ++j)
        keys_and_values.push_back(static_cast<T>((*rows)(i, j)));
  auto const key_values = device_copy(keys_and_values);
  auto const both = panel_of(key_values, 2 * width);
  auto const ids =
      whole.dropout.probability > 0 ? numbers_of(whole.dropout.token_ids) : std::vector<std::int64_t>();

  auto const numbers = [&](std::int64_t count) { return std::vector<T>(static_cast<std::size_t>(count)); };
  Together<T> sum{numbers(num_keys * columns), numbers(num_keys * heads), numbers(num_keys * columns),
                  numbers(num_keys * width), numbers(num_keys * width)};
  for (std::int64_t part = 0; part < num_parts; ++part) {
    auto shape = whole.shape;
    shape.sequence /= num_parts;
    shape.num_parts = num_parts;
    shape.part = part;
    std::vector<T> q, d_out;
    std::vector<std::int64_t> positions, own_ids;
    for (std::int64_t i = 0; i < shape.num_tokens(); ++i) {
      auto const token = shape.tokens().token_of(i);
      for (std::int64_t j = 0; j < columns; ++j) {
        q.push_back(static_cast<T>(whole.q(token, j)));
        d_out.push_back(static_cast<T>(whole.d_out(token, j)));
      }
      positions.push_back(whole.positions.empty() ? token % whole.shape.sequence
                                                  : whole.positions[static_cast<std::size_t>(token)]);
      if (!ids.empty()) own_ids.push_back(ids[static_cast<std::size_t>(token)]);
    }
    auto const of_rows = numbers(shape.num_tokens() * columns);
    auto const own_q = device_copy(q), own_d_out = device_copy(d_out), dq = device_copy(of_rows),
               out = device_copy(of_rows);
    auto const gradients = device_copy(std::vector<T>(keys_and_values.size(), T{77}));
    auto const row_numbers = device_copy(numbers(shape.num_row_numbers()));
    auto const row_terms = device_copy(numbers(shape.num_row_numbers()));
    auto const in_documents = device_copy(positions);
    auto dropout = whole.dropout;
    if (!ids.empty()) dropout.token_ids = device_copy(own_ids);
    auto const gradient_panel = panel_of(gradients, 2 * width);
    AttentionOperands<T> const in{panel_of(own_q, columns), both.columns({0, width}),
                                  both.columns({width, 2 * width})};
    AttentionOperands<T> const d_in{panel_of(dq, columns), gradient_panel.columns({0, width}),
                                    gradient_panel.columns({width, 2 * width})};
    if (kernels == Kernels::of_devices) {
      pmm::detail::AttentionTask<T> const task(shape, in, row_numbers, dropout, in_documents.data(), tile);
      pmm::detail::attend_on_device(whole.exec, task, panel_of(out, columns));
      pmm::detail::attend_backward_on_device(whole.exec, task, panel_of(out, columns),
                                             panel_of(own_d_out, columns), d_in, row_terms);
    } else {
      runtime::PassLedger passes;
      attention_forward(whole.exec, passes, shape, in, panel_of(out, columns), row_numbers, dropout,
                        in_documents);
      attention_backward(whole.exec, passes, shape, in, panel_of(out, columns), row_numbers,
                         panel_of(own_d_out, columns), d_in, row_terms, dropout, in_documents);
    }
    auto const of_out = numbers_of(out), of_dq = numbers_of(dq), of_sums = numbers_of(row_numbers),
               of_gradients = numbers_of(gradients);
    for (std::int64_t i = 0; i < shape.num_tokens(); ++i) {
      auto const token = shape.tokens().token_of(i);
      for (std::int64_t j = 0; j < columns; ++j) {
        sum.out[static_cast<std::size_t>(token * columns + j)] =
            of_out[static_cast<std::size_t>(i * columns + j)];
        sum.dq[static_cast<std::size_t>(token * columns + j)] =
            of_dq[static_cast<std::size_t>(i * columns + j)];
      }
      for (std::int64_t h = 0; h < heads; ++h)
        sum.log_sum_exp[static_cast<std::size_t>(token * heads + h)] =
            of_sums[static_cast<std::size_t>(i * heads + h)];
    }
    for (std::int64_t i = 0; i < num_keys; ++i)
      for (std::int64_t j = 0; j < width; ++j) {
        sum.dk[static_cast<std::size_t>(i * width + j)] +=
            of_gradients[static_cast<std::size_t>(2 * i * width + j)];
        sum.dv[static_cast<std::size_t>(i * width + j)] +=
            of_gradients[static_cast<std::size_t>((2 * i + 1) * width + j)];
      }
  }
  return sum;
}

template<class T>
void expect_near(std::vector<T> const& found, PlainRows const& expected, double bound,
                 std::string const& what) {
  ASSERT_EQ(found.size(), expected.numbers.size());
  auto worst = 0.0;
  for (std::size_t at = 0; at < found.size(); ++at) {
    auto const distance = static_cast<double>(found[at]) - expected.numbers[at];
    worst = std::max(worst, std::isnan(distance) ? HUGE_VAL : std::abs(distance));
  }
  EXPECT_LE(worst, bound) << what;
}

template<class T>
void expect_definition(AttentionCase<T> const& whole, Together<T> const& found, double bound,
                       std::string const& what) {
  PlainAttention const plain(
      whole.shape, whole.q, whole.k, whole.v, whole.d_out,
      [&](auto token, auto head, auto key) { return whole.mask(token, head, key); }, whole.positions);
  expect_near(found.out, plain.out, bound, what + " out");
  expect_near(found.log_sum_exp, plain.log_sum_exp, bound, what + " log_sum_exp");
  expect_near(found.dq, plain.dq, bound, what + " dq");
  expect_near(found.dk, plain.dk, bound, what + " dk");
  expect_near(found.dv, plain.dv, bound, what + " dv");
}

/// Documents of 1 to 75 tokens, which end within chunks and reach over several.
std::vector<std::int64_t> documents_of(AttentionShape const& shape) {
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < shape.num_tokens(); ++i) {
    auto const begins = i % shape.sequence == 0 || i * i % 97 == 1 || i % 75 == 20;
    positions.push_back(begins ? 0 : positions.back() + 1);
  }
  return positions;
}

template<class T>
class AttentionInParts : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionInParts, Scalars);

// Chunks of 1 to 75 tokens, which begin on both sides of the blocks of 8, 32 and 128; with documents and dropout.
TYPED_TEST(AttentionInParts, EqualsTheDefinitionOnWholeSequences) {
  constexpr auto bound = std::is_same_v<TypeParam, float> ? 1e-4 : 1e-12;
  for (std::int64_t const num_parts : {2, 3, 4})
    for (std::int64_t const chunk : {1, 5, 8, 33, 75})
      for (bool const is_full : {false, true}) {
        auto const odd = chunk % 2;
        AttentionShape const shape{2, 2 * num_parts * chunk, 4, 2, odd == 0 ? 16 : 5};
        AttentionCase<TypeParam> whole(shape);
        if (is_full) {
          std::vector<std::int64_t> ids(static_cast<std::size_t>(shape.num_tokens()));
          std::iota(ids.begin(), ids.end(), std::int64_t{500});
          whole.dropout = {0.3, {5, runtime::Purpose::dropout, 2, 7}, device_copy(ids), 3, 8};
          whole.positions = documents_of(shape);
        }
        auto const what = std::to_string(num_parts) + " parts, chunks of " + std::to_string(chunk);

        expect_definition(whole, attend_in_parts(whole, num_parts, Kernels::chosen), bound, what);
        if (chunk < 40)
          for (int const tile : {4, 16})
            expect_definition(whole, attend_in_parts(whole, num_parts, Kernels::of_devices, tile), bound,
                              what + ", tiles of " + std::to_string(tile));
      }
}

// A query's keys are processed in the same blocks on any number of ranks.
TEST(AttentionOfParts, QueriesHaveTheBitsOfOneRank) {
  if (!runs_on_host) GTEST_SKIP() << "blocks of host processors";
  AttentionShape const shape{2, 180, 2, 1, 16};
  AttentionCase<double> whole(shape);
  whole.run();
  auto const one = attend_in_parts(whole, 1, Kernels::chosen);
  for (std::int64_t const num_parts : {2, 3, 5}) {
    auto const found = attend_in_parts(whole, num_parts, Kernels::chosen);
    EXPECT_EQ(found.out, one.out) << num_parts;
    EXPECT_EQ(found.log_sum_exp, one.log_sum_exp) << num_parts;
    EXPECT_EQ(found.dq, one.dq) << num_parts;
  }
}

TEST(SequenceParts, AreOrderedByTokenAndBack) {
  AttentionShape const shape{2, 4, 1, 1, 3, 3, 0};
  std::vector<double> by_part, by_token(static_cast<std::size_t>(shape.num_keys() * 2));
  for (std::int64_t part = 0; part < 3; ++part)
    for (std::int64_t i = 0; i < 8; ++i)
      for (std::int64_t j = 0; j < 2; ++j)
        by_part.push_back(static_cast<double>(2 * SequencePart{4, 3, part}.token_of(i) + j));
  std::iota(by_token.begin(), by_token.end(), 0.0);
  auto const from = device_copy(by_part), to = device_copy(std::vector<double>(by_part.size()));
  runtime::PassLedger passes;

  order_by_token<double>({}, passes, shape, panel_of(from, 2), panel_of(to, 2));
  EXPECT_EQ(numbers_of(to), by_token);

  auto const back = device_copy(std::vector<double>(by_part.size()));
  order_by_part<double>({}, passes, shape, panel_of(to, 2), panel_of(back, 2));
  EXPECT_EQ(numbers_of(back), by_part);
  EXPECT_THROW(order_by_part<double>({}, passes, shape, panel_of(to, 4), panel_of(back, 2)), runtime::Error);
}

TEST(AttentionOfParts, ListsWhatItCounts) {
  AttentionShape const shape{2, 6, 2, 1, 4, 3, 1};
  StepPlan step({1, 1, 1, 1}, {}, sizeof(float));
  plan_attention_forward(step, shape);
  auto const pass = passes_of(step).front();
  EXPECT_EQ(pass.flops, 2 * 2 * (18 * 19 / 2) / 3 * 4 * 4) << "a third of the pairs";
  EXPECT_EQ(pass.bytes_read, (12 * 8 + 2 * 36 * 4) * 4);
}

} // namespace
} // namespace orthant::testing
