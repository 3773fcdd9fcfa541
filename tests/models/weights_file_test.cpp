// SPDX-License-Identifier: Apache-2.0
#include "models/weights_file.hpp"
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
  auto const& logits = model.forward({}, models::Gcn<double>::Pass::training, 1, phases);
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
    models::Gcn<double> saved(grid, store, model_of(7, 1));
    models::save_weights(grid, file, saved.parameters(), models::FeatureNorm::row);
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

TEST(WeightsFile, RefusesOtherShapesAndOtherFiles) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const store = store_of_dataset(world, "sbm:vertices=60,edges=200,features=5,classes=3");
  pmm::ProcessGrid const grid(world, pmm::near_cubic(world.size()));
  auto const file = folder.file("weights.h5");
  models::Gcn<float> saved(grid, store, model_of(7, 1));
  models::save_weights(grid, file, saved.parameters(), models::FeatureNorm::none);
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
