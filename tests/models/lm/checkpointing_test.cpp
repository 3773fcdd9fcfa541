// SPDX-License-Identifier: Apache-2.0
//
// Layers or single results of them that are computed again, with or without the calls of the first time, and weights that are gathered
// ahead, change no bit; and what is kept.
#include "models/lm/lm_cases.hpp"

#include <tuple>

namespace orthant::testing {
namespace {

class LmCheckpointing : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  LmCheckpointing()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {}

  /// Five layers, so that segments of two and of three are not all full.
  static LmCase with(models::TransformerSettings settings, std::int64_t checkpoint_every) {
    settings.num_layers = 5;
    settings.dropout = 0.2;
    settings.checkpoint_every = checkpoint_every;
    return {settings, 8, 6};
  }
  static std::vector<models::TransformerSettings> shapes() {
    auto llama = models::llama_settings(5, 16, 4, 2, 24, 6);
    return {small_gpt().settings, llama};
  }

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

std::vector<models::Recomputation> recomputations() {
  std::vector<models::Recomputation> all;
  for (auto const norms : {false, true})
    for (auto const activations : {false, true})
      for (auto const attention : {false, true})
        all.push_back({norms, activations, attention});
  return all;
}

void expect_same_bits(LmGradients const& found, LmGradients const& expected) {
  EXPECT_EQ(found.loss, expected.loss);
  for (std::size_t p = 0; p < expected.names.size(); ++p)
    EXPECT_EQ(found.gradients[p].numbers, expected.gradients[p].numbers) << expected.names[p];
}

TEST_P(LmCheckpointing, GivesTheSameBits) {
  for (auto const& settings : shapes()) {
    if (!fits(with(settings, 0), grid_.shape())) continue;
    auto const expected = lm_gradients(grid_, with(settings, 0));
    for (auto const every : {1, 2, 3, 5, 9}) {
      SCOPED_TRACE(every);
      expect_same_bits(lm_gradients(grid_, with(settings, every)), expected);
    }
    for (auto const every : {0, 2})
      for (auto const& recomputed : recomputations()) {
        SCOPED_TRACE(::testing::Message() << text_of(recomputed) << ", every " << every);
        auto the_case = with(settings, every);
        the_case.settings.recomputed = recomputed;
        expect_same_bits(lm_gradients(grid_, the_case), expected);
      }
  }
}

TEST_P(LmCheckpointing, GathersAheadGiveTheSameBits) {
  for (auto const& settings : shapes())
    for (auto const every : {0, 2}) {
      auto const the_case = with(settings, every);
      if (!fits(the_case, grid_.shape())) continue;
      auto const calls = [&](bool gathers_ahead) {
        clear_ledgers(grid_);
        auto gradients = lm_gradients(grid_, the_case, gathers_ahead);
        return std::pair(std::move(gradients), counted_calls(grid_));
      };

      auto const [expected, expected_calls] = calls(false);
      auto const [found, found_calls] = calls(true);

      expect_same_bits(found, expected);
      EXPECT_EQ(found_calls, expected_calls);
    }
}

// With results that are kept, layers are computed again without a call: a pass makes those of a pass that keeps all activations.
TEST_P(LmCheckpointing, KeptCollectivesAreNotMadeAgain) {
  for (auto const& settings : shapes())
    for (auto const gathers_ahead : {false, true}) {
      if (!fits(with(settings, 0), grid_.shape())) continue;
      clear_ledgers(grid_);
      auto const expected = lm_gradients(grid_, with(settings, 0), gathers_ahead);
      auto const expected_calls = counted_calls(grid_);
      for (auto const every : {1, 2, 3}) {
        SCOPED_TRACE(every);
        auto the_case = with(settings, every);
        the_case.settings.keeps_collectives = true;
        clear_ledgers(grid_);

        auto const found = lm_gradients(grid_, the_case, gathers_ahead);

        EXPECT_EQ(counted_calls(grid_), expected_calls);
        expect_same_bits(found, expected);
      }
    }
}

// The calls of a pass forward and back, with those of the layers that are computed again.
TEST_P(LmCheckpointing, CommunicatesWhatIsListed) {
  for (auto const& settings : shapes())
    for (auto const& [every, keeps, recomputed] : {std::tuple{1, false, models::Recomputation{}},
                                                   {2, false, {}},
                                                   {3, false, {true, true, true}},
                                                   {1, true, {}},
                                                   {2, true, {true, false, true}},
                                                   {3, true, {}},
                                                   {0, false, {true, false, false}},
                                                   {0, false, {false, true, false}},
                                                   {0, false, {false, false, true}}}) {
      auto the_case = with(settings, every);
      the_case.settings.keeps_collectives = keeps;
      the_case.settings.recomputed = recomputed;
      if (!fits(the_case, grid_.shape())) continue;
      SCOPED_TRACE(::testing::Message() << every << ", keeps " << keeps << ", again " << text_of(recomputed));
      auto list = step_of<double>(grid_);
      auto const plan = plan_transformer(grid_.shape(), grid_.coordinates(), the_case.settings, 8, 6);
      plan_transformer_forward(list, plan);
      plan_transformer_backward(list, plan);
      models::Transformer<double> network(grid_, the_case.settings, 8, 6, lm_seed);
      LmBatch const batch(the_case, network.sequences(), 0);
      network.set_tokens(batch.tokens, batch.positions);
      CountedPasses const passes(grid_);
      clear_ledgers(grid_);

      runtime::PhaseTimes phases;
      network.forward({}, models::Pass::training, 1, phases);
      network.backward({}, phases);

      EXPECT_EQ(counted_calls(grid_), planned_calls(calls_of(list)));
      EXPECT_EQ(passes.list(), passes_of(list));
    }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, LmCheckpointing, ::testing::ValuesIn(lm_grids()), GridName());

// Per token of a rank, with L layers of width H, F in between, h heads and segments of N layers, in numbers:
//
//   block   2 norms' inputs and the middle 3 H, queries, keys and values 3 H, attention H, sums h, moments 4, 2 F
//   held    N blocks, and the stream behind each N-th layer, the last one, and N - 1 in between
//   again   one of the norms' inputs, F or attention's H in all, in place of one in each block
TEST(LmCheckpointingOfAPlan, KeepsTheFormulasBytes) {
  constexpr std::int64_t H = 16, F = 32, h = 4, m = 48, L = 6;
  auto const bytes = [&](std::int64_t every, models::Recomputation const& recomputed = {}) {
    auto settings = small_gpt().settings;
    settings.num_layers = L;
    settings.checkpoint_every = every;
    settings.recomputed = recomputed;
    pmm::StepPlan step({1, 1, 1, 1}, {}, sizeof(float));
    plan_transformer_arrays(step, plan_transformer(step.shape(), {}, settings, 8, 6));
    return bytes_held(step);
  };
  constexpr auto block = 3 * H + 3 * H + H + h + 4 + 2 * F;
  for (std::int64_t const every : {1, 2, 3, 6}) {
    SCOPED_TRACE(every);
    auto const kept = every * block + (L / every + every - 1) * H;
    EXPECT_EQ(bytes(0) - bytes(every), 4 * m * (L * block + L * H - kept));
  }
  for (std::int64_t const every : {0, 2})
    for (auto const& recomputed : recomputations()) {
      SCOPED_TRACE(::testing::Message() << text_of(recomputed) << ", every " << every);
      auto const num_blocks = every == 0 ? L : every;
      auto const saved =
          (recomputed.norms ? (2 * num_blocks - 1) * H : 0) +
          (num_blocks - 1) * ((recomputed.activations ? F : 0) + (recomputed.attention ? H : 0));
      EXPECT_EQ(bytes(every) - bytes(every, recomputed), 4 * m * saved);
    }
}

} // namespace
} // namespace orthant::testing
