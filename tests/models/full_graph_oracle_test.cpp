// SPDX-License-Identifier: Apache-2.0
//
// Absolute losses, gradient norms, accuracies and parameters of full-graph training, computed by a NumPy
// script from their definitions (oracle/oracle.py), repeated on every grid. The data are in the repository.
#include "oracle_cases.hpp"
#include "support/grids.hpp"

namespace orthant::testing {
namespace {

std::filesystem::path const folder = where_sources_lie(ORTHANT_ORACLE_FOLDER);

class FullGraphOracle : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  FullGraphOracle()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}) {}

  template<class T>
  void repeat(nlohmann::json const& figures, models::ProductOrder order, double tolerance) {
    SCOPED_TRACE(figures.at("name").get<std::string>());
    auto const store = store_of_case(world_, folder, figures);
    auto model_settings = model_of_case(figures);
    model_settings.order = order;
    auto settings = training_of_case(figures);
    settings.eval_every = 1;
    models::GraphNetwork<T> model(grid_, store, model_settings);
    set_formula_parameters(model.parameters());
    auto loss = models::make_vertex_loss<T>(grid_, store, model.plan().logits());
    models::Trainer<T> trainer(grid_, model, loss, settings);
    auto num_epochs = std::size_t{0};

    trainer.run([&](runtime::EpochRecord const& record) {
      auto const& expected = figures.at("epochs").at(num_epochs++);
      EXPECT_NEAR(record.loss, expected.at("loss").get<double>(), tolerance) << "epoch " << record.epoch;
      expect_gradient_norms(record.grad_norms, expected.at("grad_norms"), model.parameters(), tolerance);
      EXPECT_NEAR(record.score("val_loss").value(), expected.at("valid_loss").get<double>(), tolerance);
      EXPECT_NEAR(record.score("test_loss").value(), expected.at("test_loss").get<double>(), tolerance);
      auto const expect_correct = [&](double accuracy, char const* key, std::size_t split) {
        auto const count = static_cast<double>(store.facts().split_sizes[split]);
        EXPECT_EQ(std::llround(accuracy * count), expected.at(key).get<long long>()) << key;
      };
      expect_correct(record.score("train_acc").value(), "train_correct", 0);
      expect_correct(record.score("val_acc").value(), "valid_correct", 1);
      expect_correct(record.score("test_acc").value(), "test_correct", 2);
    });

    EXPECT_EQ(num_epochs, figures.at("epochs").size());
    expect_parameter_norms(grid_, model.parameters(), figures.at("final_norms"), tolerance);
  }

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

// Numbers of size 1 in double, 20 steps: rounding stays below 1e-12, and 1e-10 leaves room for other
// libraries.
TEST_P(FullGraphOracle, IsRepeated) {
  for (auto const& figures : oracle_cases(folder, "full"))
    repeat<double>(figures, models::ProductOrder::automatic, 1e-10);
}

TEST_P(FullGraphOracle, IsRepeatedInEveryProductOrder) {
  if (grid_.shape() != pmm::near_cubic(world_.size())) GTEST_SKIP() << "on one grid per number of ranks";
  auto const cases = oracle_cases(folder, "full");
  auto const& with_all_parts = cases.at(3);
  ASSERT_EQ(with_all_parts.at("name"), "blocks_all_parts");
  for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first})
    repeat<double>(with_all_parts, order, 1e-10);
}

INSTANTIATE_TEST_SUITE_P(AllGrids, FullGraphOracle, ::testing::ValuesIn(grids_3d(world_size())), GridName());

} // namespace
} // namespace orthant::testing
