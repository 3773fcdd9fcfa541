// SPDX-License-Identifier: Apache-2.0
//
// Transformers with experts on every grid and expert degree beside one rank: losses, gradients, trainings, and what a step does.
#include "models/lm/formula_batches.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/lm/transformer/transformer_parameters.hpp"
#include "models/plan/step_cases.hpp"
#include "support/live_arrays.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace orthant::testing {
namespace {

using pmm::Axis;

struct NamedCase {
  std::string name;
  LmCase lm;
};

std::vector<NamedCase> expert_lm_cases() {
  std::vector<NamedCase> all;
  auto const add = [&](std::string name, auto const& change) {
    auto the_case = small_gpt();
    the_case.num_sequences = 16;
    the_case.settings.experts.num_experts = 8;
    the_case.settings.experts.balance_loss = 0.2;
    the_case.settings.experts.z_loss = 0.1;
    change(the_case.settings);
    all.push_back({std::move(name), the_case});
  };
  add("every layer, top-1", [](auto&) {});
  add("every second layer, top-2 of limited capacity, noise", [](auto& s) {
    s.experts.every = 2;
    s.experts.top_k = 2;
    s.experts.capacity = 0.7;
    s.experts.noise = 0.5;
  });
  add("llama, top-2, dropout, layers computed again", [](auto& s) {
    s.norm = models::NormKind::rms;
    s.activation = models::FeedForward::swiglu;
    s.has_bias = s.tied_head = false;
    s.dropout = 0.1;
    s.checkpoint_every = 1;
    s.experts.top_k = 2;
    s.experts.capacity = 1.5;
  });
  add("every second layer, two shared experts, layers computed again", [](auto& s) {
    s.activation = models::FeedForward::swiglu;
    s.checkpoint_every = 1;
    s.recomputed = {true, true, true};
    s.experts.every = 2;
    s.experts.top_k = 2;
    s.experts.num_shared = 2;
  });
  add("sigmoid gates with biases, sequences balanced, top-2", [](auto& s) {
    s.experts.top_k = 2;
    s.experts.has_biases = true;
    s.experts.balance_loss = s.experts.z_loss = 0;
    s.experts.sequence_loss = 0.3;
  });
  add("norms of all heads, a layer without experts first, narrow and shared experts, scaled weights",
      [](auto& s) {
        s.query_key_norm = models::QueryKeyNorm::all;
        s.activation = models::FeedForward::swiglu;
        s.experts.top_k = 2;
        s.experts.num_dense = 1;
        s.experts.width = 12;
        s.experts.num_shared = 2;
        s.experts.weight_scale = 2.5;
      });
  return all;
}

/// data, expert, x, y, z.
class ExpertTransformer : public ::testing::TestWithParam<std::array<int, 5>> {
 protected:
  ExpertTransformer()
      : grid_(world_, {.data = GetParam()[0],
                       .x = GetParam()[2],
                       .y = GetParam()[3],
                       .z = GetParam()[4],
                       .expert = GetParam()[1]}),
        one_(self_, {}) {}
  void SetUp() override {
    if (!fits(expert_lm_cases().front().lm, grid_.shape()) || 8 % grid_.size(Axis::expert) != 0)
      GTEST_SKIP() << "heads, sequences or experts cannot be cut";
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"}, self_{MPI_COMM_SELF, "self"};
  pmm::ProcessGrid grid_, one_;
};

TEST_P(ExpertTransformer, HasTheLossAndTheGradientsOfOneRank) {
  for (auto const& [name, the_case] : expert_lm_cases()) {
    SCOPED_TRACE(name);
    auto const found = lm_gradients(grid_, the_case);
    auto const expected = lm_gradients(one_, the_case);
    EXPECT_NEAR(found.loss, expected.loss, 1e-12 * expected.loss);
    ASSERT_EQ(found.names, expected.names);
    for (std::size_t p = 0; p < found.names.size(); ++p) {
      auto largest = 0.0, error = 0.0;
      for (std::size_t k = 0; k < expected.gradients[p].numbers.size(); ++k) {
        largest = std::max(largest, std::abs(expected.gradients[p].numbers[k]));
        error = std::max(error, std::abs(found.gradients[p].numbers[k] - expected.gradients[p].numbers[k]));
      }
      EXPECT_LE(error, 1e-11 * largest) << found.names[p];
    }
  }
}

LmTraining train(pmm::ProcessGrid const& grid, LmCase const& the_case) {
  models::TrainSettings settings;
  settings.optimizer.kind = models::OptimizerKind::adamw;
  settings.optimizer.learning_rate = 0.003;
  settings.weight_decay = 0.1;
  settings.clip_norm = 0.5;
  LmTrainer training(grid, the_case, 6, 2, settings);
  return run_to_the_end(training);
}

// Norms of gradients, clipping, weight decay and the sums over data of what some ranks have and others do not.
TEST_P(ExpertTransformer, TrainsAsOnOneRank) {
  for (auto const which : {std::size_t{1}, std::size_t{3}, std::size_t{5}}) {
    auto const [name, the_case] = expert_lm_cases()[which];
    SCOPED_TRACE(name);
    auto const found = train(grid_, the_case), expected = train(one_, the_case);
    ASSERT_EQ(found.losses.size(), 6U);
    for (std::size_t s = 0; s < found.losses.size(); ++s)
      EXPECT_NEAR(found.losses[s], expected.losses[s], 1e-10 * expected.losses[s]) << "step " << s;
    EXPECT_NE(found.losses.back(), found.losses.front());
    for (std::size_t p = 0; p < found.norms.size(); ++p)
      EXPECT_NEAR(found.norms[p], expected.norms[p], 1e-9 * expected.norms[p]) << p;
    // Adam divides a gradient that is zero but for rounding by its epsilon, as that of a key's bias is: absolutely, then.
    for (std::size_t p = 0; p < found.parameters.size(); ++p)
      for (std::size_t k = 0; k < found.parameters[p].numbers.size(); ++k)
        EXPECT_NEAR(found.parameters[p].numbers[k], expected.parameters[p].numbers[k], 1e-8)
            << p << ", " << k;
  }
}

TEST_P(ExpertTransformer, InitialWeightsAreThoseOfOneRankToTheBit) {
  auto const the_case = expert_lm_cases()[1].lm;
  auto const weights = [&](pmm::ProcessGrid const& grid) {
    models::Transformer<double> network(grid, the_case.settings, the_case.num_sequences, the_case.sequence,
                                        7);
    std::vector<std::vector<double>> all;
    for (auto const& parameter : network.parameters())
      all.push_back(whole_of(parameter, parameter.value(), false).numbers);
    return all;
  };
  EXPECT_EQ(weights(grid_), weights(one_));
}

/// Results of calls are kept, or handed out, when the calls start. Weights that are gathered ahead and tokens that travel behind work start
/// earlier than the list has them, so only the places of the other passes are those of the list.
std::vector<runtime::LocalPass> kept_results_last(std::vector<runtime::LocalPass> passes) {
  auto const is_of_work = [](runtime::LocalPass const& pass) {
    return pass.name != runtime::pass_of_kept(0).name && pass.name != runtime::pass_of_replayed(0).name;
  };
  auto const results = std::ranges::stable_partition(passes, is_of_work);
  std::ranges::sort(results, {},
                    [](runtime::LocalPass const& pass) { return std::pair(pass.name, pass.bytes_written); });
  return passes;
}

// One layer with experts, so that what grows has met one request: that of the list. If collectives are kept, it is not the last one, which
// is not computed again. `ahead`: messages start as they do on a device, and between nodes.
TEST_P(ExpertTransformer, DoesWhatIsListed) {
  struct Checkpointed {
    std::size_t of_case;
    std::int64_t every;
    bool keeps;
    bool ahead;
  };
  for (auto const& [of_case, checkpoint_every, keeps, ahead] : {Checkpointed{1, 0, false, !pmm::runs_on_host},
                                                                {1, 1, false, true},
                                                                {3, 0, false, true},
                                                                {3, 1, false, !pmm::runs_on_host},
                                                                {1, 1, true, !pmm::runs_on_host},
                                                                {1, 1, true, true},
                                                                {3, 1, true, !pmm::runs_on_host},
                                                                {3, 1, true, true},
                                                                {1, 2, true, !pmm::runs_on_host},
                                                                {5, 0, false, !pmm::runs_on_host},
                                                                {5, 1, false, true}}) {
    SCOPED_TRACE(::testing::Message() << "case " << of_case << ", every " << checkpoint_every << ", keeps "
                                      << keeps << ", ahead " << ahead);
    auto the_case = expert_lm_cases()[of_case].lm;
    the_case.settings.checkpoint_every = checkpoint_every;
    the_case.settings.keeps_collectives = keeps;
    if (keeps) the_case.settings.num_layers = 3;
    auto plan = plan_transformer(grid_.shape(), grid_.coordinates(), the_case.settings,
                                 the_case.num_sequences, the_case.sequence);
    models::OptimizerSettings optimizer;
    optimizer.kind = models::OptimizerKind::adamw;
    models::TrainSettings settings;
    settings.optimizer = optimizer;
    LiveArrays const live;
    LmTrainer trainer(grid_, the_case, 2, 1, settings);
    trainer.network().set_gathers_ahead(ahead);
    models::TrainProgress progress;
    trainer.trainer().train_epoch(progress, [](auto const&) { return true; }); // one step

    if (pmm::runs_on_host) {
      plan.experts.loads = trainer.network().dispatch_sizes();
      auto arrays = step_of<double>(grid_);
      auto const parameters = parameters_of(grid_.shape(), grid_.coordinates(), plan);
      auto const lengths = lengths_of(arrays, parameters);
      models::SummedElements summed;
      for (std::size_t p = 0; p < lengths.size(); ++p)
        summed.add(parameters[p].role, parameters[p].of_expert.has_value(), lengths[p], lengths[p]);
      plan_transformer_arrays(arrays, plan);
      plan_loss_arrays(arrays, plan.logits, pmm::LossKind::softmax);
      models::plan_update_arrays(arrays, optimizer, {lengths});
      models::plan_gradient_sum_array(arrays, summed, 1);
      auto found = live.by_label();
      auto expected = live.planned(arrays, {pmm::Lifetime::training, pmm::Lifetime::first_step});
      for (auto const* const of_batch : {"orthant::testing::device_copy"})
        found.erase(of_batch);
      EXPECT_EQ(found, expected);
    }

    CountedWork const counted(grid_);
    trainer.trainer().train_epoch(progress, {});
    plan.experts.loads = trainer.network().dispatch_sizes();
    auto list = step_of<double>(grid_);
    plan_language_model_step(list, plan, {.num_accumulated = 1}, optimizer);
    EXPECT_EQ(counted_calls(grid_), planned_calls(calls_of(list)));
    if (ahead)
      EXPECT_EQ(kept_results_last(counted.passes()), kept_results_last(passes_of(list)));
    else
      EXPECT_EQ(counted.passes(), passes_of(list));
    if (world_.size() <= 4) counted.expect_counted_kernels();
  }
}

// Whoever chooses by numbers that are none: every rank still sends what the others wait for, and all of them end with an error.
TEST_P(ExpertTransformer, EndsOnAllRanksIfARouterOrAnExpertIsNotFinite) {
  struct Broken {
    std::size_t of_case;
    std::string parameter;
    std::int64_t layer;
  };
  for (auto const& [of_case, name, layer] :
       {Broken{0, "h.0.mlp.router.weight", 0}, Broken{1, "h.1.mlp.router.weight", 1},
        Broken{2, "h.1.mlp.router.weight", 1}, Broken{0, "h.1.mlp.experts.3.c_fc.weight", 1},
        Broken{3, "h.1.mlp.shared.c_proj.weight", 1}})
    for (auto const number :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      SCOPED_TRACE(::testing::Message() << name << " of case " << of_case << ": " << number);
      LmTrainer training(grid_, expert_lm_cases()[of_case].lm, 2, 1, {});
      for (auto const& parameter : training.network().parameters())
        if (parameter.name == name) Kokkos::deep_copy(parameter.value(), number);

      std::string text = "no error";
      try {
        training.trainer().run([](auto const&) {});
      } catch (runtime::Error const& error) {
        text = error.what();
      }

      EXPECT_EQ(text, fmt::format(
                          "epoch 1, step 1: the loss is nan; the output of layer {} is the first that is not "
                          "finite (a smaller --lr or --clip-norm may help)",
                          layer));
    }
}

// With the balanced loads that plan-lm assumes: all-to-all bytes of a dispatch fall with the ranks along x.
TEST_P(ExpertTransformer, SendsEachTokenOncePerChoice) {
  auto const the_case = expert_lm_cases()[0].lm;
  auto const plan = plan_transformer(grid_.shape(), grid_.coordinates(), the_case.settings,
                                     the_case.num_sequences, the_case.sequence);
  auto list = step_of<double>(grid_);
  plan_transformer_forward(list, plan);
  std::int64_t bytes = 0;
  for (auto const& call : calls_of(list))
    if (call.axis == "expert" && call.operation == runtime::Operation::all_to_all) bytes += call.bytes;
  auto const num_owners = std::int64_t{grid_.size(Axis::expert)};
  auto const own_rows =
      pmm::balanced_sizes(grid_.shape(), grid_.coordinates(), {}, list.block(plan.stream).rows.size(), 1)
          .num_own_rows;
  constexpr std::int64_t num_layers = 2;
  auto const rows = own_rows - own_rows / num_owners;
  auto const counts = 8 / num_owners * (num_owners - 1) * std::int64_t{sizeof(std::int64_t)};
  auto const row_bytes = list.block(plan.stream).columns.size() * std::int64_t{sizeof(double)};
  EXPECT_EQ(bytes, num_owners == 1 ? 0 : num_layers * (2 * rows * row_bytes + counts));
}

INSTANTIATE_TEST_SUITE_P(AllGrids, ExpertTransformer, ::testing::ValuesIn(factorisations<5>(world_size())),
                         GridName());

// Recomputation makes no call if results are kept: a pass makes those of a pass that keeps all activations. With segments of one layer and
// of two, and layers with and without experts in them.
TEST_P(ExpertTransformer, KeptCollectivesGiveTheSameBitsWithoutACall) {
  for (auto const& [name, lm] : expert_lm_cases())
    for (auto const gathers_ahead : {false, true}) {
      auto the_case = lm;
      the_case.settings.num_layers = 4;
      the_case.settings.checkpoint_every = 0;
      clear_ledgers(grid_);
      auto const expected = lm_gradients(grid_, the_case, gathers_ahead);
      auto const expected_calls = counted_calls(grid_);
      for (std::int64_t const every : {1, 2})
        for (auto const keeps : {false, true}) {
          SCOPED_TRACE(::testing::Message() << name << ", every " << every << ", keeps " << keeps);
          the_case.settings.checkpoint_every = every;
          the_case.settings.keeps_collectives = keeps;
          clear_ledgers(grid_);

          auto const found = lm_gradients(grid_, the_case, gathers_ahead);

          if (keeps || world_.size() == 1)
            EXPECT_EQ(counted_calls(grid_), expected_calls);
          else
            EXPECT_NE(counted_calls(grid_), expected_calls);
          EXPECT_EQ(found.loss, expected.loss);
          for (std::size_t p = 0; p < expected.names.size(); ++p)
            EXPECT_EQ(found.gradients[p].numbers, expected.gradients[p].numbers) << expected.names[p];
        }
    }
}

// Tokens on their way while shared experts are computed, forward and back, and weights that are gathered ahead.
TEST_P(ExpertTransformer, TokensThatTravelBehindWorkGiveTheSameBits) {
  for (auto const& [name, the_case] : expert_lm_cases()) {
    SCOPED_TRACE(name);
    clear_ledgers(grid_);
    auto const expected = lm_gradients(grid_, the_case, false);
    auto const expected_calls = counted_calls(grid_);
    clear_ledgers(grid_);
    auto const found = lm_gradients(grid_, the_case, true);
    EXPECT_EQ(counted_calls(grid_), expected_calls);
    EXPECT_EQ(found.loss, expected.loss);
    for (std::size_t p = 0; p < expected.names.size(); ++p)
      EXPECT_EQ(found.gradients[p].numbers, expected.gradients[p].numbers) << expected.names[p];
  }
}

// A placement moves experts between ranks, and nothing else.
TEST_P(ExpertTransformer, PlacedExpertsTrainAsInOrder) {
  for (auto const which : {std::size_t{1}, std::size_t{2}}) {
    auto const [name, lm] = expert_lm_cases()[which];
    SCOPED_TRACE(name);
    auto the_case = lm;
    auto const num_layers =
        static_cast<std::size_t>(the_case.settings.num_layers / the_case.settings.experts.every);
    the_case.settings.experts.past_loads.assign(num_layers, {5, 100, 40, 7, 7, 90, 60, 1});
    auto const found = train(grid_, the_case), expected = train(grid_, lm);
    for (std::size_t s = 0; s < found.losses.size(); ++s)
      EXPECT_NEAR(found.losses[s], expected.losses[s], 1e-12 * expected.losses[s]) << "step " << s;
    for (std::size_t p = 0; p < found.parameters.size(); ++p)
      for (std::size_t k = 0; k < expected.parameters[p].numbers.size(); ++k)
        EXPECT_NEAR(found.parameters[p].numbers[k], expected.parameters[p].numbers[k], 1e-8)
            << p << ", " << k;
  }
}

// Layers that are computed again route and sum alike.
TEST(ExpertCheckpointing, GradientsAreTheSameToTheBit) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  pmm::GridShape const shape{.expert = world.size()};
  if (8 % world.size() != 0) GTEST_SKIP() << "8 experts";
  pmm::ProcessGrid const grid(world, shape);
  auto the_case = expert_lm_cases()[1].lm;
  auto const kept = lm_gradients(grid, the_case);
  the_case.settings.checkpoint_every = 1;
  auto const again = lm_gradients(grid, the_case);
  EXPECT_EQ(kept.loss, again.loss);
  for (std::size_t p = 0; p < kept.gradients.size(); ++p)
    EXPECT_EQ(kept.gradients[p].numbers, again.gradients[p].numbers) << kept.names[p];
}

} // namespace
} // namespace orthant::testing
