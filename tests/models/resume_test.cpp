// SPDX-License-Identifier: Apache-2.0
//
// A training that goes on elsewhere, from the parameters and the optimiser's state of another, goes on as that
// one would have.
#include "models_fixture.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using models::OptimizerKind;
using Update = models::ParameterUpdate<double>;

constexpr auto graph_text = "sbm:vertices=103,edges=500,features=13,classes=5";

/// The state of `from`, found by name.
void copy_state(std::vector<models::Parameter<double>> const& from_parameters, Update const& from,
                std::vector<models::Parameter<double>> const& to_parameters, Update& to) {
  for (auto const& target : to_parameters)
    for (auto const& source : from_parameters)
      if (source.name == target.name) Kokkos::deep_copy(target.value(), source.value());
  for (auto const& target : to.state())
    for (auto const& source : from.state())
      if (source.parameter.name == target.parameter.name && source.array.name == target.array.name)
        Kokkos::deep_copy(target.array.numbers, source.array.numbers);
  to.set_num_steps(from.num_steps());
}

class Resume : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}};
  graph::GraphStore store_ = store_of_dataset(world_, graph_text);
};

/// A network on the full graph, and its training.
struct Training {
  Training(pmm::ProcessGrid const& grid, graph::GraphStore const& store, models::GcnSettings const& model,
           models::TrainSettings const& settings)
      : network(grid, store, model),
        loss(models::make_vertex_loss<double>(grid, store, network.plan().logits())),
        update(std::make_shared<Update>(grid, network.parameters(), settings)),
        trainer(grid, network, loss, settings, update) {}
  models::Gcn<double> network;
  pmm::RowLoss<double> loss;
  std::shared_ptr<Update> update;
  models::FullGraphTrainer<double> trainer;
};

models::GcnSettings small_model() {
  models::GcnSettings model;
  model.set_layers(3, 9);
  model.norm = models::Norm::rms;
  model.trains_features = true;
  model.dropout = 0.3;
  model.seed = 7;
  return model;
}

TEST_P(Resume, TheOptimisersStateByNameIsAllThatTheNextStepsNeed) {
  if (grid_.size(pmm::Axis::data) > 1) GTEST_SKIP() << "full-graph training has no data axis";
  for (auto const& [kind, momentum, names] :
       {std::tuple(OptimizerKind::adam, 0.9, std::vector<std::string>{"exp_avg", "exp_avg_sq"}),
        std::tuple(OptimizerKind::adamw, 0.9, std::vector<std::string>{"exp_avg", "exp_avg_sq"}),
        std::tuple(OptimizerKind::sgd, 0.9, std::vector<std::string>{"momentum_buffer"}),
        std::tuple(OptimizerKind::sgd, 0.0, std::vector<std::string>{})}) {
    SCOPED_TRACE(::testing::Message() << "optimizer " << static_cast<int>(kind) << ", " << momentum);
    models::TrainSettings settings;
    settings.optimizer.kind = kind;
    settings.optimizer.momentum = momentum;
    settings.weight_decay = 0.01;
    Training first(grid_, store_, small_model(), settings);
    for (std::int64_t epoch = 1; epoch <= 3; ++epoch)
      static_cast<void>(first.trainer.train_epoch(epoch));

    auto const state = first.update->state();
    ASSERT_EQ(state.size(), names.size() * first.network.parameters().size());
    for (std::size_t i = 0; i < state.size(); ++i) {
      auto const& parameter = first.network.parameters()[i / names.size()];
      EXPECT_EQ(state[i].parameter.name, parameter.name);
      EXPECT_EQ(state[i].array.name, names[i % names.size()]);
      EXPECT_EQ(state[i].array.numbers.extent(0), parameter.value().extent(0));
    }
    EXPECT_EQ(first.update->num_steps(), 3);
    Training second(grid_, store_, small_model(), settings);
    copy_state(first.network.parameters(), *first.update, second.network.parameters(), *second.update);

    for (std::int64_t epoch = 4; epoch <= 7; ++epoch) {
      auto const expected = first.trainer.train_epoch(epoch);
      EXPECT_NEAR(second.trainer.train_epoch(epoch).loss, expected.loss, rounding) << "epoch " << epoch;
    }
    EXPECT_EQ(second.update->num_steps(), 7);
  }
}

/// Every grid of one and of two data groups.
std::vector<std::array<int, 4>> resume_grids() {
  auto grids = grids_4d(world_size());
  std::erase_if(grids, [](std::array<int, 4> const& shape) { return shape[0] > 2; });
  return grids;
}

INSTANTIATE_TEST_SUITE_P(Grids, Resume, ::testing::ValuesIn(resume_grids()), GridName());

} // namespace
} // namespace orthant::testing
