// SPDX-License-Identifier: Apache-2.0
//
// A training that has diverged is no result, even where the loss of the last step, before its update, was
// still finite.
#include "models/gnn/batches/mini_batch.hpp"
#include "models/gnn/files/network_weights.hpp"

#include "models_fixture.hpp"
#include "support/grids.hpp"
#include "support/scratch_folder.hpp"

#include <functional>
#include <gtest/gtest.h>
#include <limits>

namespace orthant::testing {
namespace {

constexpr auto graph_text = "sbm:vertices=103,edges=500,features=13,classes=5";

models::NetworkSettings small_model() {
  models::NetworkSettings model;
  model.set_layers(3, 9);
  return model;
}

std::string error_of(std::function<void()> const& work) {
  try {
    work();
  } catch (runtime::Error const& error) {
    return error.what();
  }
  return "no error";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class Divergence : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  std::string train_one_epoch(models::TrainSettings settings) {
    settings.num_epochs = 1;
    return error_of([&] { static_cast<void>(train<float>(grid_, store_, small_model(), settings)); });
  }
  std::string train_batches(models::TrainSettings settings) {
    settings.num_epochs = 1;
    models::MiniBatchSettings batches;
    batches.batch_size = 103;
    return error_of([&] {
      models::MiniBatchNetwork<float> trainer(grid_, store_, small_model(), settings, batches);
      trainer.run([](runtime::EpochRecord const&) {});
    });
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
  graph::GraphStore store_ = store_of_dataset(world_, graph_text);
};

TEST_P(Divergence, TheLastEpochsScoresAreLookedAt) {
  models::TrainSettings settings;
  settings.optimizer.learning_rate = 1e38;

  EXPECT_HAS(train_one_epoch(settings), "after the update of epoch 1 the loss of the train part is nan");
  EXPECT_HAS(train_batches(settings), "after the update of epoch 1 the loss of the train part is nan");
}

TEST_P(Divergence, TheLastWeightsAreLookedAtWithoutAnEvaluation) {
  models::TrainSettings settings;
  settings.eval_every = 0;
  for (auto const rate : {1e38, std::numeric_limits<double>::infinity()}) {
    settings.optimizer.learning_rate = rate;

    EXPECT_HAS(train_one_epoch(settings), "after the last update the norm of layer0.weight is");
    EXPECT_HAS(train_batches(settings), "after the last update the norm of layer0.weight is");
  }
}

TEST_P(Divergence, AGradientThatIsNotFiniteIsNamed) {
  auto const model = small_model();
  models::NetworkParameters<float> parameters(grid_, models::plan_network(store_, model), model);
  models::ParameterUpdate<float> update(grid_, parameters.list(), {});
  runtime::DefaultExec const exec;
  runtime::PhaseTimes phases;
  update.run(exec, {}, phases);
  EXPECT_EQ(update.finish(exec).diverged, "");
  for (std::string const name : {"layer1.bias", "layer0.weight"}) {
    for (auto const& parameter : parameters.list())
      if (parameter.name == name)
        Kokkos::deep_copy(parameter.gradient(), std::numeric_limits<float>::infinity());

    update.run(exec, {}, phases);

    EXPECT_EQ(update.finish(exec).diverged, name) << "the first one";
  }
}

TEST_P(Divergence, TheFirstLayerWhoseOutputIsNotFiniteIsNamed) {
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (std::size_t layer = 0; layer < 3; ++layer) {
      SCOPED_TRACE(::testing::Message() << name_of(schedule) << ", layer " << layer);
      auto settings = small_model();
      settings.schedule = schedule;
      models::GraphNetwork<float> model(grid_, store_, settings);
      auto loss = models::make_vertex_loss<float>(grid_, store_, model.plan().logits());
      models::Trainer<float> trainer(grid_, model, loss, {});
      for (auto const& parameter : model.parameters())
        if (parameter.name == "layer" + std::to_string(layer) + ".weight")
          Kokkos::deep_copy(parameter.value(), std::numeric_limits<float>::infinity());

      auto const text = error_of([&] { static_cast<void>(trainer.train_epoch(1)); });

      EXPECT_HAS(text, "the output of layer " + std::to_string(layer) + " is the first that is not finite");
    }
}

TEST_P(Divergence, WeightsThatAreNotFiniteAreNotLoaded) {
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("weights.h5");
  auto const model = small_model();
  models::NetworkParameters<float> parameters(grid_, models::plan_network(store_, model), model);
  models::save_weights(grid_, path, parameters.list(), models::record_of(model));
  EXPECT_EQ(error_of([&] { models::load_weights(grid_, path, parameters.list()); }), "no error");
  for (auto const number :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (auto const& parameter : parameters.list())
      if (parameter.name == "layer1.weight") Kokkos::deep_copy(parameter.value(), number);
    models::save_weights(grid_, path, parameters.list(), models::record_of(model));

    auto const text = error_of([&] { models::load_weights(grid_, path, parameters.list()); });

    EXPECT_HAS(text, "/parameters/layer1.weight holds a weight that is infinite or not a number");
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, Divergence, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
