// SPDX-License-Identifier: Apache-2.0
//
// Transformers train through the one loop: accumulated batches, data groups, clipping, AdamW.
#include "models/lm/formula_batches.hpp"

namespace orthant::testing {
namespace {

LmTraining train_lm(pmm::ProcessGrid const& grid, nlohmann::json const& figures) {
  models::TrainSettings settings;
  settings.optimizer.kind = models::OptimizerKind::adamw;
  settings.optimizer.learning_rate = 0.003;
  settings.optimizer.beta2 = 0.99;
  settings.weight_decay = 0.1;
  settings.clip_norm = figures.at("clip_norm").get<double>();
  settings.without_decay = figures.at("no_decay").get<std::vector<std::string>>();
  auto the_case = lm_case(figures);
  the_case.settings.frozen = figures.at("freeze").get<std::vector<std::string>>();
  if (figures.contains("lora"))
    the_case.settings.adapters = {figures["lora"]["rank"], figures["lora"]["alpha"],
                                  figures["lora"]["targets"]};
  LmTrainer training(grid, the_case, std::ssize(figures.at("losses")),
                     figures.at("accumulate").get<std::int64_t>(), settings);
  return run_to_the_end(training);
}

class LmTrainingOnGrid : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  LmTrainingOnGrid()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {}

  /// Beside the losses and the parameters of PyTorch's AdamW after all steps. An error of a gradient grows from step to
  /// step, so the 50th loss is held to less than the first.
  void expect_reference(char const* name) {
    auto const figures = lm_reference(ORTHANT_LM_REFERENCE_FOLDER).at(name);
    if (!fits(lm_case(figures), grid_.shape())) GTEST_SKIP() << "cannot be cut";

    auto const found = train_lm(grid_, figures);

    ASSERT_EQ(found.losses.size(), figures.at("losses").size());
    for (std::size_t s = 0; s < found.losses.size(); ++s) {
      auto const expected = figures.at("losses").at(s).get<double>();
      EXPECT_NEAR(found.losses[s], expected, 1e-10 * expected) << "step " << s;
    }
    for (std::size_t p = 0; p < found.names.size(); ++p)
      expect_told(found.parameters[p], figures.at("parameters").at(found.names[p]), 1e-9, found.names[p]);
  }

  void expect_steps_of_one_rank(std::int64_t num_kv_heads) {
    auto figures = lm_reference(ORTHANT_LM_REFERENCE_FOLDER).at("training");
    figures["settings"]["kv_heads"] = num_kv_heads;
    if (!fits(lm_case(figures), grid_.shape())) GTEST_SKIP() << "cannot be cut";
    runtime::Communicator const self(MPI_COMM_SELF, "self");
    pmm::ProcessGrid const one(self, {1, 1, 1, 1});

    auto const found = train_lm(grid_, figures);
    auto const expected = train_lm(one, figures);

    for (std::size_t s = 0; s < found.losses.size(); ++s)
      EXPECT_NEAR(found.losses[s], expected.losses[s], 1e-10 * expected.losses[s]) << "step " << s;
    for (std::size_t p = 0; p < found.names.size(); ++p) {
      auto error = 0.0;
      for (std::size_t k = 0; k < expected.parameters[p].numbers.size(); ++k)
        error = std::max(error, std::abs(found.parameters[p].numbers[k] - expected.parameters[p].numbers[k]));
      // The gradient of a key's bias is zero but for rounding, which AdamW divides by its epsilon: absolutely, then.
      auto const scale = found.names[p].ends_with("c_attn.bias") ? 1.0 : norm_of(expected.parameters[p]);
      EXPECT_LE(error, 1e-10 * scale) << found.names[p];
    }
  }

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

TEST_P(LmTrainingOnGrid, FiftyStepsOfAdamWAreThoseOfPyTorch) {
  auto const figures = lm_reference(ORTHANT_LM_REFERENCE_FOLDER).at("training");
  EXPECT_GT(figures.at("clipped").get<int>(), 5) << "clipping is to be active";
  EXPECT_LT(figures.at("losses").back().get<double>(), figures.at("losses").front().get<double>());
  expect_reference("training");
}

TEST_P(LmTrainingOnGrid, AccumulatedBatchesWithDropoutAreThoseOfPyTorch) {
  expect_reference("accumulated");
}

TEST_P(LmTrainingOnGrid, FrozenWeightsAndWeightsWithoutDecayAreThoseOfPyTorch) {
  expect_reference("frozen");
}

TEST_P(LmTrainingOnGrid, AdaptersAreThoseOfPyTorch) {
  expect_reference("lora");
}
TEST_P(LmTrainingOnGrid, AdaptersOfOneTargetAreThoseOfPyTorch) {
  expect_reference("lora_gpt");
}

// With frozen weights, moments exist for the others alone.
TEST_P(LmTrainingOnGrid, FrozenWeightsKeepTheirBitsAndHaveNoMoments) {
  auto the_case = small_gpt();
  the_case.settings.frozen = {"wte.weight", "h.1.*"};
  if (!fits(the_case, grid_.shape())) GTEST_SKIP() << "cannot be cut";
  LmTrainer training(grid_, the_case, 3, 2, {});
  models::ParameterUpdate<double> const update(grid_, training.network().parameters(), {});
  auto const values = [&] {
    std::vector<std::vector<double>> all;
    for (auto const& parameter : training.network().parameters()) {
      auto const numbers = host_copy(parameter.value());
      all.emplace_back(numbers.data(), numbers.data() + numbers.extent(0));
    }
    return all;
  };

  auto const before = values();
  training.trainer().run([](auto const&) {});
  auto const after = values();

  std::size_t num_frozen = 0;
  for (std::size_t p = 0; p < before.size(); ++p) {
    auto const& parameter = training.network().parameters()[p];
    num_frozen += parameter.is_frozen ? 1 : 0;
    EXPECT_EQ(parameter.is_frozen, parameter.name == "wte.weight" || parameter.name.starts_with("h.1."));
    if (parameter.is_frozen || before[p].empty()) {
      EXPECT_EQ(before[p], after[p]) << parameter.name;
    } else {
      EXPECT_NE(before[p], after[p]) << parameter.name;
    }
  }
  EXPECT_EQ(update.state().size(), 2 * (before.size() - num_frozen));
}

// 50 steps on every grid beside one rank.
TEST_P(LmTrainingOnGrid, FiftyStepsAreThoseOfOneRank) {
  expect_steps_of_one_rank(4);
}
TEST_P(LmTrainingOnGrid, FiftyStepsOfOneKeyValueHeadAreThoseOfOneRank) {
  expect_steps_of_one_rank(1);
}
TEST_P(LmTrainingOnGrid, FiftyStepsOfTwoKeyValueHeadsAreThoseOfOneRank) {
  expect_steps_of_one_rank(2);
}

INSTANTIATE_TEST_SUITE_P(AllGrids, LmTrainingOnGrid, ::testing::ValuesIn(lm_grids()), GridName());

} // namespace
} // namespace orthant::testing
