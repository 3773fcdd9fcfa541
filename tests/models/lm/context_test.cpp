// SPDX-License-Identifier: Apache-2.0
//
// Transformers whose sequences are shared by ranks along context, on every grid beside one rank: losses, gradients, trainings, and what a
// step does.
#include "models/lm/listed_step.hpp"
#include "support/user_messages.hpp"

namespace orthant::testing {
namespace {

using pmm::Axis, runtime::Operation;

constexpr std::int64_t length = 24; // 2, 4, 6 or 8 chunks

struct NamedCase {
  std::string name;
  LmCase lm;
};

/// GPT's and Llama's shapes: learned and rotary positions, tied and own heads, shared key-value heads, norms of queries and keys, dropout,
/// documents, recomputation, adapters and experts.
std::vector<NamedCase> context_cases() {
  std::vector<NamedCase> cases;
  auto const add = [&](char const* name, auto const& change) {
    NamedCase the_case{name, small_gpt()};
    the_case.lm.num_sequences = 4;
    the_case.lm.sequence = the_case.lm.settings.max_sequence = length;
    change(the_case.lm.settings);
    cases.push_back(the_case);
  };
  auto const as_llama = [](models::TransformerSettings& s) {
    s.positions = models::Positions::rotary;
    s.norm = models::NormKind::rms;
    s.activation = models::FeedForward::swiglu;
    s.has_bias = s.tied_head = false;
    s.num_kv_heads = 2;
  };
  add("gpt, dropout", [](auto& s) { s.dropout = 0.2; });
  add("llama, dropout, documents", [&](auto& s) {
    as_llama(s);
    s.dropout = 0.1;
    s.masks_documents = true;
  });
  add("gpt, documents, one key-value head, layers computed again", [](auto& s) {
    s.num_kv_heads = 1;
    s.masks_documents = true;
    s.num_layers = 3;
    s.checkpoint_every = 1;
    s.keeps_collectives = true;
    s.recomputed = {false, true, true};
  });
  add("llama, norms of heads, results computed again", [&](auto& s) {
    as_llama(s);
    s.query_key_norm = models::QueryKeyNorm::head;
    s.recomputed = {true, true, true};
  });
  add("llama, norms of all heads, experts", [&](auto& s) {
    as_llama(s);
    s.query_key_norm = models::QueryKeyNorm::all;
    s.experts.num_experts = 4;
    s.experts.top_k = 2;
    s.experts.balance_loss = 0.2;
    s.experts.z_loss = 0.1;
    s.experts.noise = 0.5;
    s.dropout = 0.1;
  });
  add("llama, twelve key-value heads, dropout, documents, layers computed again", [&](auto& s) {
    as_llama(s);
    s.num_heads = 24;
    s.num_kv_heads = 12; // which 2, 3, 4, 6 and 12 ranks along x and context divide
    s.head_width = 2;
    s.query_key_norm = models::QueryKeyNorm::head;
    s.masks_documents = true;
    s.dropout = 0.1;
    s.num_layers = 3;
    s.checkpoint_every = 1;
    s.keeps_collectives = true;
    s.recomputed = {true, true, true};
  });
  add("gpt, experts with biases", [](auto& s) {
    s.experts.num_experts = 4;
    s.experts.has_biases = true;
  });
  return cases;
}

/// data, context, expert, x, y, z.
using Sizes = std::array<int, 6>;

/// All grids of up to 6 ranks with a context axis; of more, some with two to five axes.
std::vector<Sizes> grids_with_context(int num_ranks) {
  if (num_ranks == 8)
    return {{2, 2, 1, 2, 1, 1}, {1, 2, 2, 2, 1, 1}, {1, 2, 1, 2, 2, 1}, {1, 2, 1, 1, 2, 2},
            {1, 4, 1, 1, 1, 2}, {1, 4, 1, 2, 1, 1}, {2, 4, 1, 1, 1, 1}, {1, 4, 2, 1, 1, 1}};
  if (num_ranks == 12)
    return {{1, 3, 1, 2, 2, 1}, {2, 3, 1, 2, 1, 1}, {1, 3, 2, 1, 1, 2}, {1, 3, 2, 2, 1, 1}};
  if (num_ranks == 16)
    return {{2, 2, 2, 2, 1, 1}, {1, 2, 1, 2, 2, 2}, {2, 4, 1, 1, 1, 2},
            {1, 4, 2, 2, 1, 1}, {1, 2, 2, 1, 2, 2}, {1, 4, 1, 4, 1, 1}};
  std::vector<Sizes> grids;
  for (int context = num_ranks == 1 ? 1 : 2; context <= 4; ++context)
    for (int expert = 1; expert <= 2; ++expert)
      for (int data = 1; data <= num_ranks; ++data)
        if (num_ranks % (context * expert * data) == 0)
          for (auto const& shape : pmm::all_shapes(num_ranks / (context * expert * data)))
            grids.push_back({data, context, expert, shape.x, shape.y, shape.z});
  return grids;
}

std::string name_of_grid(::testing::TestParamInfo<Sizes> const& info) {
  auto const& [data, context, expert, x, y, z] = info.param;
  return fmt::format("data{}context{}expert{}x{}y{}z{}", data, context, expert, x, y, z);
}

class ContextTransformer : public ::testing::TestWithParam<Sizes> {
 protected:
  ContextTransformer()
      : grid_(world_, {.data = GetParam()[0],
                       .x = GetParam()[3],
                       .y = GetParam()[4],
                       .z = GetParam()[5],
                       .expert = GetParam()[2],
                       .context = GetParam()[1]}),
        one_(self_, {}) {}

  /// The cases that this grid can cut, with each exchange that it can make.
  [[nodiscard]] std::vector<NamedCase> cases() const {
    std::vector<NamedCase> all;
    for (auto [name, lm] : context_cases()) {
      if (!fits(lm, grid_.shape()) || (grid_.size(Axis::expert) > 1 && !lm.settings.experts.is_on()))
        continue;
      for (auto const exchange : {models::ContextExchange::key_values, models::ContextExchange::heads}) {
        if (exchange == models::ContextExchange::heads && !can_exchange_heads(grid_.shape(), lm.settings))
          continue;
        lm.settings.context_exchange = exchange;
        all.push_back({fmt::format("{}; exchange of {}", name, name_of(exchange)), lm});
      }
    }
    return all;
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"}, self_{MPI_COMM_SELF, "self"};
  pmm::ProcessGrid grid_, one_;
};

double largest_of(Dense const& a) {
  auto largest = 0.0;
  for (auto const number : a.numbers)
    largest = std::max(largest, std::abs(number));
  return largest;
}

double distance_of(Dense const& a, Dense const& b) {
  auto difference = a;
  for (std::size_t k = 0; k < a.numbers.size(); ++k)
    difference.numbers[k] -= b.numbers[k];
  return largest_of(difference);
}

TEST_P(ContextTransformer, HasTheLossAndTheGradientsOfOneRank) {
  for (auto const& [name, the_case] : cases()) {
    SCOPED_TRACE(name);
    auto const found = lm_gradients(grid_, the_case);
    auto const expected = lm_gradients(one_, the_case);
    EXPECT_NEAR(found.loss, expected.loss, 1e-12 * expected.loss);
    for (std::size_t p = 0; p < found.names.size(); ++p)
      EXPECT_LE(distance_of(found.gradients[p], expected.gradients[p]),
                1e-10 * largest_of(expected.gradients[p]) + 1e-16)
          << found.names[p];
  }
}

/// Ten steps of two passes. `zero_stage`: 1 and 2 shard the optimizer's states over context, too.
LmTraining train(pmm::ProcessGrid const& grid, LmCase const& the_case, int zero_stage) {
  models::TrainSettings settings;
  settings.optimizer.kind = models::OptimizerKind::adamw;
  settings.optimizer.learning_rate = 0.003;
  settings.optimizer.epsilon =
      1e-4; // or rounding errors of gradients that are zero, as of a key's bias, become steps
  settings.optimizer.zero_stage = zero_stage;
  settings.weight_decay = 0.1;
  settings.clip_norm = 0.5;
  LmTrainer training(grid, the_case, 10, 2, settings);
  return run_to_the_end(training);
}

TEST_P(ContextTransformer, TrainsTenStepsAsOneRank) {
  auto zero_stage = 0;
  for (auto const& [name, the_case] : cases()) {
    SCOPED_TRACE(name);
    auto const found = train(grid_, the_case, zero_stage);
    auto const expected = train(one_, the_case, 0);
    zero_stage = (zero_stage + 1) % 3;
    ASSERT_EQ(found.losses.size(), 10);
    for (std::size_t s = 0; s < found.losses.size(); ++s)
      EXPECT_NEAR(found.losses[s], expected.losses[s], 1e-10 * expected.losses[s]) << "step " << s;
    for (std::size_t p = 0; p < expected.parameters.size(); ++p)
      EXPECT_LE(distance_of(found.parameters[p], expected.parameters[p]),
                1e-10 * std::max(1.0, largest_of(expected.parameters[p])))
          << p;
  }
}

TEST_P(ContextTransformer, DoesWhatIsListed) {
  for (auto [name, the_case] : cases()) {
    the_case.settings.keeps_collectives = false;     // kept results have memory from the first step on
    if (the_case.settings.experts.is_on()) continue; // models.expert_transformer has their lists
    SCOPED_TRACE(name);
    expect_listed_step(grid_, the_case, 2);
  }
}

// Per layer and rank with m tokens and h heads of d numbers. Keys and values are gathered forward, and again backward, when their gradients are
// also reduced. Queries, keys, values and outputs move forward, and their gradients move back.
TEST_P(ContextTransformer, SendsTheWordsOfItsExchange) {
  for (auto const exchange : {models::ContextExchange::key_values, models::ContextExchange::heads}) {
    auto the_case = context_cases().front().lm;
    the_case.settings.context_exchange = exchange;
    if (!fits(the_case, grid_.shape()) || grid_.size(Axis::expert) > 1) GTEST_SKIP() << "cannot be cut";
    auto const is_of_heads = exchange == models::ContextExchange::heads;
    if (is_of_heads && !can_exchange_heads(grid_.shape(), the_case.settings)) continue;
    models::Transformer<double> network(grid_, the_case.settings, the_case.num_sequences, length, lm_seed);
    network.set_tokens(LmBatch(the_case, network.sequences(), 0, network.tokens()).tokens);
    auto const words = [&] {
      return grid_.over(Axis::context).ledger().total().sent_bytes / std::int64_t{sizeof(double)};
    };
    runtime::PhaseTimes phases;
    auto const C = std::int64_t{grid_.size(Axis::context)};
    auto const m = network.sequences().size() * length / C;
    auto const h = the_case.settings.num_kv_heads / grid_.size(Axis::x), d = the_case.settings.head_dim();
    auto const of_layer = is_of_heads ? m * 4 * h * d / C * (C - 1) : 2 * (C - 1) * m * h * d;

    auto const before = words();
    std::ignore = network.forward({}, models::Pass::evaluation, 1, phases);
    auto const between = words();
    network.backward({}, phases);

    EXPECT_EQ(between - before, the_case.settings.num_layers * of_layer);
    EXPECT_EQ(words() - between, the_case.settings.num_layers * (is_of_heads ? 1 : 2) * of_layer);
  }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, ContextTransformer, ::testing::ValuesIn(grids_with_context(world_size())),
                         name_of_grid);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ContextTransformer);

TEST(ContextAxis, RefusesWhatItCannotCut) {
  auto model = small_gpt().settings;
  model.max_sequence = 64;
  auto const message = [&](int context, std::int64_t sequence) {
    return test::message_of(
        [&] { static_cast<void>(plan_transformer({.context = context}, {}, model, 4, sequence)); });
  };
  EXPECT_EQ(message(2, 24), "no UserError");
  EXPECT_EQ(message(4, 20), "--context-axis 4 cuts each sequence in 8 equal chunks, which 20 tokens cannot "
                            "be: take --sequence 16 or 24");
  EXPECT_EQ(message(4, 5), "--context-axis 4 cuts each sequence in 8 equal chunks, which 5 tokens cannot be: "
                           "take --sequence 8");
  EXPECT_EQ(message(5, 63), "--context-axis 5 cuts each sequence in 10 equal chunks, which 63 tokens cannot "
                            "be: take --sequence 60 or 70");
  model.context_exchange = models::ContextExchange::heads;
  EXPECT_EQ(message(4, 24), "no UserError");
  EXPECT_EQ(message(3, 24),
            "--context-exchange heads: the 4 heads of keys and values are no multiple of "
            "--context-axis 3 times the 1 ranks along x of --grid 3x1x1x1: take key-values, or auto");
  model.context_exchange = models::ContextExchange::automatic;
  model.experts.num_experts = 4;
  model.experts.capacity = 1.5;
  EXPECT_NE(message(2, 24).find("use --capacity-group rank, or --capacity none"), std::string::npos);
  model.experts.capacity_group = models::CapacityGroup::rank;
  EXPECT_EQ(message(2, 24), "no UserError");
  model.experts.has_biases = true;
  model.experts.sequence_loss = 0.1;
  EXPECT_NE(message(2, 24).find("--sequence-balance-loss"), std::string::npos);
}

TEST(ContextAxis, IsAFactorOfData) {
  auto const shape = models::parse_grid("12x2x1x1", 24, {.expert = 2, .context = 3});
  EXPECT_EQ(shape, (pmm::GridShape{.data = 2, .x = 2, .expert = 2, .context = 3}));
  EXPECT_EQ(models::grid_text(shape), "12x2x1x1");
  EXPECT_EQ(shape.to_string(), "2x2x1x1, expert 2, context 3");
  auto const message = [](models::InnerAxes const& inner) {
    return test::message_of([&] { static_cast<void>(models::parse_grid("4x1x1x1", 4, inner)); });
  };
  EXPECT_EQ(message({.context = 3}),
            "--context-axis 3 does not divide the 4 data groups of --grid 4x1x1x1; take a divisor of them");
  EXPECT_EQ(message({.expert = 2, .context = 4}),
            "--context-axis 4 does not divide the 2 data groups of --grid 4x1x1x1 with --expert-axis 2; take "
            "a divisor of them");
}

TEST(ContextAxis, KeepsNoKeysForLaterTokens) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "no context axis";
  auto the_case = small_gpt();
  auto const sequence = 2 * std::int64_t{world.size()};
  the_case.settings.max_sequence = sequence;
  pmm::ProcessGrid const grid(world, {.context = world.size()});
  auto const message = test::message_of(
      [&] { models::Transformer<double> const network(grid, the_case.settings, 1, sequence, 1, sequence); });
  EXPECT_NE(message.find("continue sequences on a grid without --context-axis"), std::string::npos)
      << message;
}

} // namespace
} // namespace orthant::testing
