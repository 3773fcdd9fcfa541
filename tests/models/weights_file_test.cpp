// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/files/network_weights.hpp"

#include "formula_parameters.hpp"
#include "models_fixture.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"
#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"

#include <cmath>
#include <gtest/gtest.h>
#include <memory>

namespace orthant::testing {
namespace {

models::NetworkSettings model_of(std::int64_t hidden, std::uint64_t seed) {
  models::NetworkSettings settings;
  settings.set_layers(3, hidden);
  settings.seed = seed;
  return settings;
}

models::NetworkSettings model_with_all_parts(std::uint64_t seed) {
  models::NetworkSettings settings;
  settings.norm = models::Norm::rms;
  settings.has_residuals = true;
  settings.projected_width = 7;
  settings.has_head = true;
  settings.set_layers(2, 7);
  settings.seed = seed;
  return settings;
}

/// Saves formula-made parameters on every grid, and loads each file on every grid, perhaps for another schedule:
/// each number is the formula's of its global row and column, to the bit.
template<class T>
void expect_travels_between_all_grids(runtime::Communicator const& world, models::NetworkSettings settings,
                                      models::Schedule saved_for, models::Schedule loaded_for,
                                      std::vector<std::int64_t> const& widths) {
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const store = store_of_dataset(world, "sbm:vertices=60,edges=200,features=5,classes=3");
  settings.schedule = loaded_for;
  auto const plan_to_load = models::plan_network(store, settings);
  settings.schedule = saved_for;
  auto const plan = models::plan_network(store, settings);
  std::vector<std::unique_ptr<pmm::ProcessGrid>> grids;
  for (auto const& [x, y, z] : grids_3d(world.size()))
    grids.push_back(std::make_unique<pmm::ProcessGrid>(world, pmm::GridShape{1, x, y, z}));
  for (auto const& grid : grids) {
    auto const file = folder.file(grid->shape().to_string() + ".h5");
    models::NetworkParameters<T> saved(*grid, plan, settings);
    set_formula_parameters(saved.list());
    models::save_weights(*grid, file, saved.list(), models::record_of(settings));

    auto const facts = models::read_weights_facts(world, file);
    EXPECT_EQ(facts.widths, widths);
    EXPECT_TRUE(facts.has_bias);
    EXPECT_EQ(facts.feature_norm, models::FeatureNorm::row);
    for (auto const& other : grids) {
      models::NetworkParameters<T> loaded(*other, plan_to_load, settings);
      EXPECT_GT(num_not_formula(loaded.list()), 0) << "there is nothing to load";
      models::load_weights(*other, file, loaded.list());
      EXPECT_EQ(num_not_formula(loaded.list()), 0)
          << "saved on " << grid->shape().to_string() << ", loaded on " << other->shape().to_string();
    }
  }
}

TEST(WeightsFile, TravelsBetweenAllGrids) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  auto settings = model_of(7, 1);
  settings.feature_norm = models::FeatureNorm::row;
  using enum models::Schedule;
  expect_travels_between_all_grids<float>(world, settings, pmm3d, pmm3d, {5, 7, 7, 3});
  expect_travels_between_all_grids<float>(world, settings, pmm3d, rows, {5, 7, 7, 3});
  settings = model_with_all_parts(1);
  settings.feature_norm = models::FeatureNorm::row;
  expect_travels_between_all_grids<double>(world, settings, pmm3d, pmm3d, {7, 7, 7});
  expect_travels_between_all_grids<double>(world, settings, rows, pmm3d, {7, 7, 7});
}

/// The file's array is the matrix in row-major order: element [i,j] of "layer1.weight" is what a reader of
/// HDF5 finds there.
TEST(WeightsFile, HoldsEveryNumberAtItsGlobalIndex) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const store = store_of_dataset(world, "sbm:vertices=60,edges=200,features=5,classes=3");
  pmm::ProcessGrid const grid(world, pmm::near_cubic(world.size()));
  auto const settings = model_of(7, 1);
  models::GraphNetwork<double> saved(grid, store, settings);
  set_formula_parameters(saved.parameters());
  models::save_weights(grid, folder.file("weights.h5"), saved.parameters(), models::record_of(settings));

  auto const file = runtime::Hdf5File::open(folder.file("weights.h5"));
  auto const found = file.read_all<double>("/parameters/layer1.weight");
  ASSERT_EQ(found.size(), 49U); // 7 x 7

  // Number 2 of the list: layer0.weight, layer0.bias, layer1.weight. i = 3, j = 5:
  // k = 31 9 + 6007 15 + 7919 3 + 38183 5 + 104729 2 + 12345 = 526859, mod 100003 = 26844
  EXPECT_DOUBLE_EQ(found[3 * 7 + 5], std::sqrt(6.0 / 14) * (2 * 26844 / 100003.0 - 1));
  // i = 6, j = 0: k = 31 36 + 7919 6 + 209458 + 12345 = 270433, mod 100003 = 70427
  EXPECT_DOUBLE_EQ(found[6 * 7], std::sqrt(6.0 / 14) * (2 * 70427 / 100003.0 - 1));
}

/// Of a graph with other classes: what fits is the file's, what is skipped is that of a new model, on every grid.
TEST(WeightsFile, LeavesSkippedWeightsAsTheyAre) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const store = store_of_dataset(world, "sbm:vertices=60,edges=200,features=5,classes=3");
  auto const other = store_of_dataset(world, "sbm:vertices=60,edges=200,features=5,classes=4");
  auto const settings = model_of(7, 1);
  auto const file = folder.file("weights.h5");
  std::vector<std::string> const skip{"layer2.*", "layer?.bias"};
  for (auto const& [x, y, z] : grids_3d(world.size())) {
    pmm::ProcessGrid const grid(world, {1, x, y, z});
    models::NetworkParameters<double> saved(grid, models::plan_network(store, settings), settings);
    set_formula_parameters(saved.list());
    models::save_weights(grid, file, saved.list(), models::record_of(settings));
    models::NetworkParameters<double> loaded(grid, models::plan_network(other, settings), settings);
    models::NetworkParameters<double> const fresh(grid, models::plan_network(other, settings), settings);

    models::load_weights(grid, file, loaded.list(), skip);

    std::vector<std::string> skipped;
    for (std::size_t p = 0; p < loaded.list().size(); ++p) {
      auto const& parameter = loaded.list()[p];
      auto const is_skipped = models::matches_any(parameter.name, skip);
      if (is_skipped) skipped.push_back(parameter.name);
      auto const host = Kokkos::HostSpace();
      auto const found = Kokkos::create_mirror_view_and_copy(host, parameter.value());
      auto const initial = Kokkos::create_mirror_view_and_copy(host, fresh.list()[p].value());
      for_each_element(parameter, [&](std::int64_t i, std::int64_t j, std::size_t place) {
        EXPECT_EQ(found(place), is_skipped ? initial(place) : formula_number(parameter, p, i, j))
            << parameter.name << " on " << grid.shape().to_string();
      });
    }
    EXPECT_EQ(skipped,
              (std::vector<std::string>{"layer0.bias", "layer1.bias", "layer2.weight", "layer2.bias"}));
    auto const told = [&](std::vector<std::string> const& patterns) {
      return test::message_of([&] { models::load_weights(grid, file, loaded.list(), patterns); });
    };
    EXPECT_NE(
        told({}).find("/parameters/layer2.weight has shape 7 x 3, but the model needs 7 x 4; --init-from " +
                      file + " --init-skip layer2.weight,layer2.bias trains from the other weights"),
        std::string::npos)
        << told({});
    EXPECT_NE(told({"layer2.*", "head.*"})
                  .find("--init-skip head.* matches none of the model's weights: layer0.weight, layer0.bias, "
                        "layer1.weight, layer1.bias, layer2.weight, layer2.bias"),
              std::string::npos);
  }
}

/// Losses and accuracies of a network without dropout.
models::Scores scores_of(models::GraphNetwork<double>& model, pmm::ProcessGrid const& grid,
                         graph::GraphStore const& store) {
  auto loss = models::make_vertex_loss<double>(grid, store, model.plan().logits());
  runtime::PhaseTimes phases;
  return models::scores_of(loss.evaluate({}, model.forward({}, models::Pass::evaluation, 0, phases)));
}

TEST(WeightsFile, TellsThePartsOfItsModel) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const store = store_of_dataset(world, "sbm:vertices=60,edges=200,features=5,classes=3");
  pmm::ProcessGrid const grid(world, pmm::near_cubic(world.size()));
  auto const settings = model_with_all_parts(1);
  models::GraphNetwork<double> saved(grid, store, settings);
  models::save_weights(grid, folder.file("parts.h5"), saved.parameters(), models::record_of(settings));
  std::vector<std::string> names;
  for (auto const& parameter : saved.parameters())
    names.push_back(parameter.name);

  auto const facts = models::read_weights_facts(world, folder.file("parts.h5"));
  models::GraphNetwork<double> loaded(grid, store, models::settings_of(facts));
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

TEST(WeightsFile, ASingleLayerKeepsTheNormThatItHasNoScaleFor) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const store = store_of_dataset(world, "sbm:vertices=60,edges=200,features=5,classes=3");
  pmm::ProcessGrid const grid(world, pmm::near_cubic(world.size()));
  models::NetworkSettings settings;
  settings.norm = models::Norm::rms;
  settings.set_layers(1, 7);
  models::GraphNetwork<float> saved(grid, store, settings);
  models::save_weights(grid, folder.file("one.h5"), saved.parameters(), models::record_of(settings));

  auto const found = models::settings_of(models::read_weights_facts(world, folder.file("one.h5")));

  EXPECT_EQ(found.norm, models::Norm::rms);
  models::GraphNetwork<float> loaded(grid, store, found);
  models::load_weights(grid, folder.file("one.h5"), loaded.parameters());
  models::require_architecture(world, folder.file("one.h5"), models::architecture_of(found));
}

TEST(WeightsFile, HoldsTheParametersOfAnyModel) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  pmm::ProcessGrid const grid(world, pmm::near_cubic(world.size()));
  auto const file = folder.file("table.h5");
  auto const made = [&](std::uint64_t seed) {
    auto const table = drawn<float>(grid, {{pmm::Axis::x, pmm::Axis::z}, {11, 6}}, seed);
    return std::vector<models::Parameter<float>>{
        {"table", models::ParameterRole::embedding, 0, table, table, {}, {}}};
  };
  auto const saved = made(1);
  auto const loaded = made(2);
  models::save_weights(grid, file, saved, {{"model", "table"}, {"words", "11"}});

  models::load_weights(grid, file, loaded);

  auto const expected = host_copy(saved[0].value());
  auto const found = host_copy(loaded[0].value());
  for (std::size_t i = 0; i < expected.extent(0); ++i)
    EXPECT_EQ(found(i), expected(i));
  models::require_architecture(world, file, {{"words", "11"}});
  EXPECT_THROW(models::require_architecture(world, file, {{"words", "12"}}), runtime::UserError);
}

TEST(WeightsFile, RefusesOtherShapesAndOtherFiles) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const store = store_of_dataset(world, "sbm:vertices=60,edges=200,features=5,classes=3");
  pmm::ProcessGrid const grid(world, pmm::near_cubic(world.size()));
  auto const file = folder.file("weights.h5");
  models::GraphNetwork<float> saved(grid, store, model_of(7, 1));
  models::save_weights(grid, file, saved.parameters(), models::record_of(model_of(7, 1)));
  models::GraphNetwork<float> other(grid, store, model_of(8, 1));

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
  auto another = model_of(7, 1);
  another.has_residuals = true; // the same parameters
  EXPECT_EQ(message_of([&] { models::require_architecture(world, file, models::architecture_of(another)); }),
            file + " holds weights of another architecture: its residual is no, that of the model yes");
}

} // namespace
} // namespace orthant::testing
