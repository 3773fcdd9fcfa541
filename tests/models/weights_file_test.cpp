// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/weights_file.hpp"
#include "models_fixture.hpp"
#include "support/grids.hpp"
#include "support/scratch_folder.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

models::GcnSettings model_of(std::int64_t hidden, std::uint64_t seed) {
  models::GcnSettings settings;
  settings.set_layers(3, hidden);
  settings.seed = seed;
  return settings;
}

/// What training says of the file's weights, on that grid.
double first_loss(pmm::ProcessGrid const& grid, graph::GraphStore const& store, std::string const& file) {
  auto settings = model_of(7, 99);
  settings.dropout = 0;
  models::Gcn<double> model(grid, store, settings);
  models::load_weights(grid, file, model.parameters());
  auto loss = models::make_vertex_loss<double>(grid, store, model.plan().logits());
  runtime::PhaseTimes phases;
  auto const& logits = model.forward({}, models::Pass::training, 1, phases);
  return loss.loss_and_gradient({}, logits, model.logits_gradient());
}

TEST(WeightsFile, TravelsBetweenAllGrids) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const store = store_of_dataset(world, "sbm:vertices=60,edges=200,features=5,classes=3");
  std::vector<double> losses;
  for (auto const& [x, y, z] : grids_3d(world.size())) {
    pmm::ProcessGrid const grid(world, {1, x, y, z});
    auto const file = folder.file(grid.shape().to_string() + ".h5");
    auto settings = model_of(7, 1);
    settings.feature_norm = models::FeatureNorm::row;
    models::Gcn<double> saved(grid, store, settings);
    models::save_weights(grid, file, saved.parameters(), settings);
    auto const facts = models::read_weights_facts(world, file);
    EXPECT_EQ(facts.widths, (std::vector<std::int64_t>{5, 7, 7, 3}));
    EXPECT_TRUE(facts.has_bias);
    EXPECT_EQ(facts.feature_norm, models::FeatureNorm::row);
    pmm::ProcessGrid const other(world, pmm::near_cubic(world.size()));
    losses.push_back(first_loss(other, store, file));
  }

  for (auto const loss : losses)
    EXPECT_NEAR(loss, losses.front(), 1e-12);
}

/// Losses and accuracies of a network without dropout.
models::Scores scores_of(models::Gcn<double>& model, pmm::ProcessGrid const& grid,
                         graph::GraphStore const& store) {
  auto loss = models::make_vertex_loss<double>(grid, store, model.plan().logits());
  runtime::PhaseTimes phases;
  return loss.evaluate({}, model.forward({}, models::Pass::evaluation, 0, phases));
}

TEST(WeightsFile, TellsThePartsOfItsModel) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const store = store_of_dataset(world, "sbm:vertices=60,edges=200,features=5,classes=3");
  pmm::ProcessGrid const grid(world, pmm::near_cubic(world.size()));
  models::GcnSettings settings;
  settings.norm = models::Norm::rms;
  settings.has_residuals = true;
  settings.projected_width = 7;
  settings.has_head = true;
  settings.set_layers(2, 7);
  settings.seed = 1;
  models::Gcn<double> saved(grid, store, settings);
  models::save_weights(grid, folder.file("parts.h5"), saved.parameters(), settings);
  std::vector<std::string> names;
  for (auto const& parameter : saved.parameters())
    names.push_back(parameter.name);

  auto const facts = models::read_weights_facts(world, folder.file("parts.h5"));
  models::Gcn<double> loaded(grid, store, models::settings_of(facts));
  models::load_weights(grid, folder.file("parts.h5"), loaded.parameters());

  EXPECT_EQ(names, (std::vector<std::string>{"input.weight", "input.bias", "layer0.weight", "layer0.bias",
                                             "layer0.norm", "layer1.weight", "layer1.bias", "layer1.norm",
                                             "head.weight", "head.bias"}));
  EXPECT_EQ(facts.widths, (std::vector<std::int64_t>{7, 7, 7}));
  EXPECT_EQ(facts.num_features(), 5);
  EXPECT_EQ(facts.num_classes(), 3);
  auto const expected = scores_of(saved, grid, store);
  auto const found = scores_of(loaded, grid, store);
  for (std::size_t split = 0; split < found.size(); ++split)
    EXPECT_NEAR(found[split].loss, expected[split].loss, rounding);
}

TEST(WeightsFile, RefusesOtherShapesAndOtherFiles) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const store = store_of_dataset(world, "sbm:vertices=60,edges=200,features=5,classes=3");
  pmm::ProcessGrid const grid(world, pmm::near_cubic(world.size()));
  auto const file = folder.file("weights.h5");
  models::Gcn<float> saved(grid, store, model_of(7, 1));
  models::save_weights(grid, file, saved.parameters(), model_of(7, 1));
  models::Gcn<float> other(grid, store, model_of(8, 1));

  auto const message_of = [](auto&& work) -> std::string {
    try {
      work();
    } catch (runtime::UserError const& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message_of([&] { models::load_weights(grid, file, other.parameters()); }),
            file + ": /parameters/layer0.weight has shape 5 x 7, but the model needs 5 x 8");
  EXPECT_NE(message_of([&] { models::load_weights(grid, folder.file("none.h5"), other.parameters()); }),
            "no error");
}

} // namespace
} // namespace orthant::testing
