// SPDX-License-Identifier: Apache-2.0
//
// The best grids of language models, against what AxoNN's papers found (arXiv 2305.13525 and 2502.08145).
#include "models/lm_training/language_model_cost.hpp"

#include "models/gnn/grid_cost.hpp"

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
  machine.sparse.points = {{1, 1 / free}};
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

} // namespace
} // namespace orthant::testing
