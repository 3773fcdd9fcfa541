// SPDX-License-Identifier: Apache-2.0
//
// The best grids of language models, against what AxoNN's papers found (arXiv 2305.13525 and 2502.08145).
#include "models/lm/training/language_model_cost.hpp"

#include "models/gnn/network/grid_choice.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using models::LanguageModelCost;
using models::SequenceSettings;

/// Work is free. All ranks of a job are on one node if `ranks_per_node` allows; links carry 100 GB/s.
pmm::Machine network(int ranks_per_node, double step_seconds) {
  constexpr auto free = 1e300;
  constexpr auto bandwidth = 100e9;
  pmm::Machine machine;
  machine.ranks_per_node = ranks_per_node;
  machine.memory.bytes_per_second = free;
  machine.dense = {free, free};
  machine.sparse.per_nonzero.points = {{1, 1 / free}};
  machine.collectives = {0, step_seconds, {{{2, 1}, bandwidth}}, bandwidth};
  return machine;
}

std::vector<LanguageModelCost> costs(int num_ranks, models::TransformerSettings const& model,
                                     SequenceSettings const& sequences, pmm::Machine const& machine) {
  return costs_of_language_model(num_ranks, model, sequences, {}, machine);
}

TEST(LanguageModelCosts, BestShapeOfTensorParallelismIsThatOfAxonn) {
  // One sequence, so x and y alone. A block sends (x - 1) + 3 (y - 1) words to a common factor: least near x = sqrt(3 x y).
  auto const model = models::gpt2_settings(32, 4096, 64, 64, 64);
  SequenceSettings const one{64, 1, 1, 0};
  auto const machine = network(1 << 20, 0);
  for (auto const& [num_ranks, best_x] : {std::pair(4, 4), {8, 4}, {16, 8}, {64, 16}, {256, 32}})
    EXPECT_EQ(costs(num_ranks, model, one, machine).front().shape.x, best_x) << num_ranks;
}

TEST(LanguageModelCosts, WithLatencyTheBestIsNoLongerPureDepth) {
  // 40 and 80 billion parameters on nodes of eight, with as many tokens as a step of the papers' largest runs. Their states, 16
  // bytes a parameter, may take 32 GB of a rank. A step of a ring takes 20 us.
  constexpr int sequence = 2048;
  constexpr double most_state_bytes = 32e9;
  constexpr double state_bytes = 16;
  struct Case {
    int num_ranks, num_layers, hidden, heads, num_sequences;
  };
  for (auto const& [num_ranks, num_layers, hidden, heads, num_sequences] :
       {Case{512, 48, 8192, 64, 2048}, {8192, 64, 10240, 80, 8192}}) {
    auto const model = models::gpt2_settings(num_layers, hidden, heads, 50304, sequence);
    auto const num_parameters = 12.0 * num_layers * hidden * hidden;
    auto const best = [&](double step_seconds) {
      SequenceSettings const sequences{sequence, num_sequences, 1, 0};
      auto all = costs(num_ranks, model, sequences, network(8, step_seconds));
      std::erase_if(all, [&](LanguageModelCost const& cost) {
        return state_bytes * num_parameters / cost.shape.size(pmm::group_axes) > most_state_bytes;
      });
      return all;
    };
    auto const without = best(0);
    auto const with = best(20e-6);
    EXPECT_EQ(without.front().shape, (pmm::GridShape{1, 1, 1, num_ranks}));
    auto const depth = std::ranges::find(with, without.front().shape, &LanguageModelCost::shape);
    EXPECT_GT(depth->seconds.total(), 1.5 * with.front().seconds.total());
    EXPECT_GT(with.front().shape.data, 1);
    RecordProperty(fmt::format("best_of_{}", num_ranks), with.front().shape.to_string());
  }
}

TEST(LanguageModelCosts, AreSumsOverTheListOfAStep) {
  auto const model = models::llama_settings(2, 16, 4, 2, 24, 6);
  SequenceSettings const sequences{6, 8, 2, 0};
  auto const all = costs(8, model, sequences, network(4, 1e-5));
  ASSERT_FALSE(all.empty());
  for (auto const& cost : all) {
    pmm::StepPlan step(cost.shape, {}, sizeof(float));
    auto const plan = models::plan_transformer(cost.shape, {}, model, 4, 6);
    models::plan_language_model_step(step, plan, sequences, {});
    EXPECT_EQ(cost.sent_bytes, models::sent_bytes_of(step)) << cost.shape.to_string();
    EXPECT_EQ(cost.num_calls, std::ssize(calls_of(step)));
    EXPECT_LE(cost.shape.data * cost.shape.z, 4);
    EXPECT_NE(cost.shape.x, 8); // of four heads
  }
  for (std::size_t i = 1; i < all.size(); ++i)
    EXPECT_LE(all[i - 1].seconds.total(), all[i].seconds.total());
}

// With C ranks, m tokens and g heads of keys of d numbers on a rank, each read by h heads of queries, a layer sends 6 (C - 1) m g d words to gather
// keys and values, and 4 (C - 1) / C m g d (h + 1) to exchange heads.
TEST(LanguageModelCosts, TakeTheFasterExchangeOfRanksAlongContext) {
  using models::ContextExchange;
  struct Case {
    int num_kv_heads;
    pmm::GridShape shape;
    ContextExchange fastest;
  };
  SequenceSettings const sequences{4096, 8, 1, 0};
  for (auto const& [num_kv_heads, shape, fastest] :
       {Case{16, {.context = 2}, ContextExchange::heads},
        Case{16, {.x = 2, .context = 8}, ContextExchange::heads},
        Case{4, {.context = 2}, ContextExchange::key_values}, Case{4, {.context = 4}, ContextExchange::heads},
        Case{4, {.x = 2, .context = 4}, ContextExchange::key_values},
        Case{4, {.context = 8}, ContextExchange::key_values}}) {
    SCOPED_TRACE(shape.to_string());
    auto model = models::llama_settings(4, 1024, 16, num_kv_heads, 1000, 4096);
    auto const cost = [&](ContextExchange exchange) {
      model.context_exchange = exchange;
      return cost_of_language_model(shape, model, sequences, {}, network(8, 1e-9));
    };

    auto const automatic = cost(ContextExchange::automatic);

    EXPECT_EQ(name_of(automatic.context_exchange), name_of(fastest));
    EXPECT_EQ(automatic.seconds.total(), cost(fastest).seconds.total());
    auto const of_key_values = cost(ContextExchange::key_values);
    EXPECT_GE(of_key_values.seconds.total(), automatic.seconds.total());
    if (!can_exchange_heads(shape, model)) {
      EXPECT_THROW(cost(ContextExchange::heads), runtime::UserError);
      continue;
    }
    auto const C = std::int64_t{shape.context};
    auto const common =
        4 * (8 * 4096 / C) * (num_kv_heads / shape.x) * 64 * (C - 1) * std::int64_t{sizeof(float)};
    auto const h = 16 / num_kv_heads;
    EXPECT_EQ(of_key_values.sent_bytes - cost(ContextExchange::heads).sent_bytes,
              common * 6 - common * 4 * (h + 1) / C);
  }
}

// The short models order the grids: the best of them are those of the whole list, and their costs are exact.
TEST(FastestGrids, AreTheBestOfAll) {
  for (auto const checkpoint_every : {0, 2}) {
    auto model = models::llama_settings(12, 1024, 16, 8, 32000, 512);
    model.checkpoint_every = checkpoint_every;
    SequenceSettings const sequences{512, 256, 2, 0};
    auto const machine = network(8, 2e-5);
    auto const all = costs(64, model, sequences, machine);
    ASSERT_GT(all.size(), 40U);

    auto const fastest = models::fastest_grids(64, model, sequences, {}, machine, {.num_grids = 5});

    ASSERT_EQ(fastest.costs.size(), 5U);
    EXPECT_EQ(fastest.left_out.num_costs, 0);
    for (std::size_t i = 0; i < fastest.costs.size(); ++i) {
      EXPECT_EQ(fastest.costs[i].shape, all[i].shape) << i;
      EXPECT_EQ(fastest.costs[i].seconds.total(), all[i].seconds.total()) << i;
      EXPECT_EQ(fastest.costs[i].sent_bytes, all[i].sent_bytes) << i;
      EXPECT_EQ(fastest.costs[i].memory_bytes(), all[i].memory_bytes()) << i;
    }
  }
}

TEST(FastestGrids, FitIntoTheMemoryOfARank) {
  auto const model = models::gpt2_settings(12, 256, 8, 1000, 64);
  SequenceSettings const sequences{64, 64, 1, 0};
  auto const machine = network(8, 2e-5);
  auto all = costs(64, model, sequences, machine);
  auto const least = std::ranges::min(all, {}, &LanguageModelCost::memory_bytes).memory_bytes();
  auto const limit = least + least / 4;
  auto const num_all = std::ssize(all);
  std::erase_if(all, [&](LanguageModelCost const& cost) { return cost.memory_bytes() > limit; });
  ASSERT_LT(std::ssize(all), num_all);
  constexpr std::int64_t others = 1000;
  auto const limited = [&](std::int64_t bytes) {
    return models::fastest_grids(
        64, model, sequences, {}, machine,
        {.bytes = static_cast<double>(bytes), .other_bytes = others, .num_grids = 1});
  };

  auto const fastest = limited(limit + others);
  auto const nothing = limited(least + others - 1);

  ASSERT_EQ(fastest.costs.size(), 1U);
  EXPECT_EQ(fastest.costs.front().shape, all.front().shape);
  EXPECT_TRUE(nothing.costs.empty());
  EXPECT_EQ(nothing.left_out.num_costs, num_all);
  EXPECT_EQ(nothing.left_out.least_bytes, least);
}

// Of expert parameters a rank then holds what its share of the expert axis has.
TEST(FastestGrids, HaveTheExpertAxisThatIsAskedFor) {
  auto model = models::llama_settings(2, 64, 4, 2, 100, 16);
  model.feed_forward = 4096; // experts outweigh what 256 tokens make of them
  model.experts.num_experts = 8;
  model.experts.planned_imbalance = 1;
  SequenceSettings const sequences{16, 16, 1, 0};
  auto const machine = network(8, 2e-5);
  auto const with_axis = [&](int expert_axis) {
    return models::fastest_grids(8, model, sequences, {}, machine,
                                 {.num_grids = 100, .inner = {.expert = expert_axis}})
        .costs;
  };

  for (auto const expert_axis : {1, 2, 4, 8}) {
    auto const fastest = with_axis(expert_axis);
    EXPECT_FALSE(fastest.empty());
    for (auto const& cost : fastest) {
      EXPECT_EQ(cost.shape.expert, expert_axis) << cost.shape.to_string();
      EXPECT_EQ(cost.shape.num_ranks(), 8);
      if (cost.shape.z > 1) continue; // gathered weights are fewer, too
      auto whole = cost.shape;
      whole.data *= whole.expert;
      whole.expert = 1;
      auto const held = models::cost_of_language_model(whole, model, sequences, {}, machine).array_bytes;
      // Value, gradient and two moments, and their sum over batches, of which experts have one each along data.
      auto const num_arrays = 5, num_held = cost.shape.data > 1 || expert_axis == 1 ? 5 : 4;
      auto const of_experts =
          2LL * 8 * 3 * 64 * model.feed_forward / (cost.shape.x * cost.shape.y) * std::int64_t{sizeof(float)};
      auto const saved = of_experts * num_arrays - of_experts * num_held / expert_axis;
      EXPECT_NEAR(static_cast<double>(held - cost.array_bytes), static_cast<double>(saved),
                  0.1 * static_cast<double>(held))
          << cost.shape.to_string();
    }
  }
  EXPECT_THROW(with_axis(3), runtime::UserError);
  EXPECT_THROW(static_cast<void>(
                   models::fastest_grids(16, model, {16, 4, 1, 0}, {}, machine, {.inner = {.expert = 8}})),
               runtime::UserError);
  model.experts.num_experts = 4;
  EXPECT_THROW(with_axis(8), runtime::UserError);
}

TEST(ShapeAdvice, NamesWhatWastesWork) {
  auto model = models::gpt2_settings(2, 768, 12, 50304, 1024);
  EXPECT_TRUE(advice_on_shapes({2, 2, 2, 2}, model, {1024, 64, 2, 0}).empty());
  model.vocabulary = 50257; // GPT-2's
  auto advice = advice_on_shapes({1, 1, 1, 1}, model, {1024, 1, 1, 0});
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_EQ(advice.front(), "the vocabulary 50257: it is no multiple of 64, so 99.9 % of the work is of use; "
                            "50304 would be even");
  // 768 columns over 5 ranks: parts of 154 and 153 columns, each in 3 tiles.
  model.vocabulary = 50304;
  advice = advice_on_shapes({1, 1, 5, 1}, model, {1024, 1, 1, 0});
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_EQ(advice.front(), "--hidden 768: 5 ranks along y cut it unevenly, so 80.0 % of the work is of use; "
                            "960 would be even");
  advice = advice_on_shapes({3, 1, 1, 2}, model, {1021, 8, 1, 0});
  ASSERT_EQ(advice.size(), 2U);
  EXPECT_TRUE(advice[0].starts_with("--sequence 1021: it is no multiple of 8, so 99.7 %")) << advice[0];
  EXPECT_TRUE(advice[1].starts_with(
      "--global-batch / --accumulate 8: 6 ranks along data x z cut it unevenly, so 66.7 %"))
      << advice[1];
}

} // namespace
} // namespace orthant::testing
