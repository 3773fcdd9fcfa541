// SPDX-License-Identifier: Apache-2.0
//
// The training of a language model on a token file: what it holds, sends and reads on every grid, and what it learns.
#include "models/lm/training/language_model.hpp"

#include "models/lm/training/language_model_cost.hpp"
#include "models/plan/step_cases.hpp"
#include "support/grids.hpp"
#include "support/live_arrays.hpp"
#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"
#include "tokens/tokenize.hpp"

#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

constexpr std::int64_t sequence = 8;

class LanguageModelOnGrid : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  LanguageModelOnGrid()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}),
        folder_(MPI_COMM_WORLD) {
    if (world_.is_root()) {
      std::string text;
      for (int i = 0; i < 60; ++i)
        text += "abcadefa"[i * i % 8], text += "the"[i % 3];
      test::write_file(folder_.file("text"), text);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    tokens::tokenize(world_,
                     {folder_.file("text"), folder_.file("t.h5"), tokens::TokenizerKind::character, 0.75});
    training_.optimizer.kind = models::OptimizerKind::adamw;
    training_.num_epochs = 3;
    training_.eval_every = 3;
  }
  [[nodiscard]] static tokens::TokenFile open(runtime::Communicator const& comm, std::string const& path) {
    return tokens::TokenFile::open(comm, path);
  }
  [[nodiscard]] models::TransformerSettings model(tokens::TokenFile const& file) const {
    return models::gpt2_settings(2, 8 * grid_.shape().x, 2 * grid_.shape().x, file.vocabulary().size(),
                                 sequence);
  }
  [[nodiscard]] models::SequenceSettings sequences(std::int64_t num_accumulated) const {
    auto const num_owners = std::int64_t{grid_.shape().data} * grid_.shape().z;
    return {sequence, num_accumulated * (num_owners + 1), num_accumulated, 5}; // one rank has two
  }
  /// The trainer must hold what is listed, and the second step do it.
  template<class T>
  void expect_listed(std::int64_t num_accumulated) {
    training_.eval_every = 0;
    auto file = open(world_, folder_.file("t.h5"));
    auto const settings = model(file);
    auto const how = sequences(num_accumulated);
    auto const plan =
        models::plan_transformer(grid_.shape(), grid_.coordinates(), settings, how.num_sequences(), sequence);
    auto list = step_of<T>(grid_);
    models::plan_language_model_arrays(list, plan, how, training_.optimizer);
    models::plan_language_model_step(list, plan, how, training_.optimizer);

    LiveArrays const live;
    models::LanguageModel<T> training(grid_, settings, how, training_, file);
    if (pmm::runs_on_host) {
      EXPECT_EQ(live.by_label(), live.planned(list, {pmm::Lifetime::training, pmm::Lifetime::first_step}));
    }
    // The second step is counted.
    std::optional<CountedWork> counted;
    training.run([](auto const&) {}, {},
                 [&](models::TrainProgress const& progress) {
                   if (progress.epoch == 2) counted.emplace(grid_);
                   if (progress.epoch < 3) return false;
                   EXPECT_EQ(counted->passes(), passes_of(list));
                   EXPECT_EQ(counted_calls(grid_), planned_calls(list));
                   return true;
                 });
  }

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
  test::ScratchFolder folder_;
  models::TrainSettings training_;
};

// One in K tokens, the same behind the same tokens.
TEST(Goldfish, LeavesOutOneInKByTheTokensBefore) {
  models::Goldfish const goldfish{4, 13};
  std::vector<std::int32_t> tokens(13);
  auto num_left_out = 0;
  constexpr auto num_tries = 40'000;
  for (std::int32_t i = 0; i < num_tries; ++i) {
    for (std::int32_t k = 0; k < 13; ++k)
      tokens[static_cast<std::size_t>(k)] = (i * 7919 + k * 104729) % 50257;
    auto const is_left_out = goldfish.leaves_out(tokens);
    num_left_out += is_left_out ? 1 : 0;
    EXPECT_EQ(goldfish.leaves_out(tokens), is_left_out);
  }
  EXPECT_NEAR(num_left_out, num_tries / 4, 5 * std::sqrt(num_tries * 0.25 * 0.75));
}

TEST_P(LanguageModelOnGrid, HoldsAndDoesWhatIsListed) {
  for (std::int64_t const num_accumulated : {1, 2}) {
    expect_listed<double>(num_accumulated);
    training_.optimizer.gradient_wire = runtime::Wire::int8;
    expect_listed<float>(num_accumulated);
    training_.optimizer.gradient_wire = runtime::Wire::native;
  }
}

// Norms and biases are split along x or y, and ranks along the other axes have copies. The 31 columns of a feed-forward layer are unequal parts.
TEST_P(LanguageModelOnGrid, EncodedSumsOfGradientsKeepCopiesEqual) {
  training_.eval_every = 0;
  training_.num_epochs = 20; // steps
  for (auto const wire : {runtime::Wire::bf16, runtime::Wire::fp8, runtime::Wire::int8}) {
    training_.optimizer.gradient_wire = wire;
    auto file = open(world_, folder_.file("t.h5"));
    auto settings = model(file);
    settings.feed_forward = 31;
    models::LanguageModel<float> training(grid_, settings, sequences(1), training_, file);
    std::vector<double> losses;
    training.run([&](runtime::EpochRecord const& record) { losses.push_back(record.loss); });
    EXPECT_LT(losses.back(), losses.front()) << "it does not learn";
    expect_equal_copies(grid_, training.parameters());
  }
}

/// Windows of sequence + 1 tokens of two bytes, of its own sequences alone.
TEST_P(LanguageModelOnGrid, ReadsItsOwnSequencesAlone) {
  auto file = open(world_, folder_.file("t.h5"));
  training_.eval_every = 0;
  auto const how = sequences(2);
  models::LanguageModel<double> training(grid_, model(file), how, training_, file);

  training.run([](auto const&) {});

  auto const num_owners = std::int64_t{grid_.shape().data} * grid_.shape().z;
  auto const own = runtime::balanced_range(how.num_sequences(), num_owners,
                                           std::int64_t{grid_.coordinate(pmm::Axis::data)} * grid_.shape().z +
                                               grid_.coordinate(pmm::Axis::z));
  EXPECT_EQ(file.bytes_read(), training_.num_epochs * 2 * own.size() * (sequence + 1) * 2);
}

/// The loss over the 30 validation tokens, in passes of which the last is not full, is the one on one rank. Before the first step
/// all V tokens are about as likely, so it is near log V; but weights are drawn with deviation 0.02, and the head is the table of
/// the tokens: the logit of the token that is read is up to 0.02 h, which takes from the others if it does not follow itself.
TEST_P(LanguageModelOnGrid, EvaluatesTheWholeValidationPart) {
  auto file = open(world_, folder_.file("t.h5"));
  models::LanguageModel<double> training(grid_, model(file), sequences(1), training_, file);
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  pmm::ProcessGrid const one(self, {1, 1, 1, 1});
  auto own_file = open(self, folder_.file("t.h5"));
  models::LanguageModel<double> alone(one, model(file), {sequence, 3, 1, 5}, training_, own_file);

  auto const found = training.evaluate()[1];
  auto const expected = alone.evaluate()[1];

  EXPECT_EQ(file.num_tokens(tokens::Part::valid), 30);
  EXPECT_EQ(found.num_counted, 29);
  EXPECT_EQ(found.num_correct, expected.num_correct);
  EXPECT_NEAR(found.loss, expected.loss, 1e-12);
  auto const size = static_cast<double>(file.vocabulary().size());
  auto const of_repeating = std::log1p(std::expm1(0.02 * static_cast<double>(model(file).hidden)) / size);
  EXPECT_NEAR(found.loss, std::log(size), 0.05 + of_repeating);
}

INSTANTIATE_TEST_SUITE_P(AllGrids, LanguageModelOnGrid, ::testing::ValuesIn(grids_4d(world_size())),
                         GridName());

TEST(SequenceSettings, FitModelAndGrid) {
  auto const model = models::gpt2_settings(1, 8, 2, 5, 16);
  auto const message = [&](models::SequenceSettings const& sequences, pmm::GridShape const& shape) {
    return test::message_of([&] { static_cast<void>(models::plan_sequences(shape, {}, model, sequences)); });
  };

  EXPECT_EQ(message({16, 4, 2, 0}, {2, 1, 1, 1}), "no UserError");
  EXPECT_EQ(message({17, 4, 2, 0}, {1, 1, 1, 1}),
            "--sequence 17 is longer than the 16 positions of the model");
  EXPECT_EQ(message({16, 4, 3, 0}, {1, 1, 1, 1}),
            "--accumulate 3 does not divide the 4 sequences of --global-batch");
  EXPECT_NE(message({16, 4, 2, 0}, {2, 1, 1, 2}).find("2 sequences per pass are fewer than the 4 ranks"),
            std::string::npos);
}

} // namespace
} // namespace orthant::testing
