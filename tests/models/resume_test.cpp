// SPDX-License-Identifier: Apache-2.0
//
// A training that goes on elsewhere, from the parameters and the optimizer's state of another, goes on as that
// one would have; its learning rate, too.
#include "models/gnn/batches/mini_batch.hpp"

#include "models_fixture.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using models::OptimizerKind;
using Update = models::ParameterUpdate<double>;

constexpr auto graph_text = "sbm:vertices=103,edges=500,features=13,classes=5";

/// Parameters and state of `from`, found by name.
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
  Training(pmm::ProcessGrid const& grid, graph::GraphStore const& store, models::NetworkSettings const& model,
           models::TrainSettings const& settings)
      : network(grid, store, model),
        loss(models::make_vertex_loss<double>(grid, store, network.plan().logits())),
        update(std::make_shared<Update>(grid, network.parameters(),
                                        models::with_num_steps(settings, settings.num_epochs))),
        trainer(grid, network, loss, settings, update) {}
  models::GraphNetwork<double> network;
  pmm::RowLoss<double> loss;
  std::shared_ptr<Update> update;
  models::Trainer<double> trainer;
};

models::NetworkSettings small_model(models::Schedule schedule = models::Schedule::pmm3d) {
  models::NetworkSettings model;
  model.schedule = schedule;
  model.set_layers(3, 9);
  model.norm = models::Norm::rms;
  model.trains_features = true;
  model.dropout = 0.3;
  model.seed = 7;
  return model;
}

TEST_P(Resume, TheOptimisersStateByNameIsAllThatTheNextStepsNeed) {
  if (grid_.size(pmm::Axis::data) > 1) GTEST_SKIP() << "full-graph training has no data axis";
  using enum models::Schedule;
  for (auto const& [kind, momentum, names, schedule] :
       {std::tuple(OptimizerKind::adam, 0.9, std::vector<std::string>{"exp_avg", "exp_avg_sq"}, pmm3d),
        std::tuple(OptimizerKind::adamw, 0.9, std::vector<std::string>{"exp_avg", "exp_avg_sq"}, rows),
        std::tuple(OptimizerKind::adamw, 0.9, std::vector<std::string>{"exp_avg", "exp_avg_sq"}, pmm3d),
        std::tuple(OptimizerKind::lion, 0.9, std::vector<std::string>{"exp_avg"}, pmm3d),
        std::tuple(OptimizerKind::sgd, 0.9, std::vector<std::string>{"momentum_buffer"}, pmm3d),
        std::tuple(OptimizerKind::sgd, 0.0, std::vector<std::string>{}, pmm3d)}) {
    SCOPED_TRACE(::testing::Message() << "optimizer " << static_cast<int>(kind) << ", " << momentum << ", "
                                      << models::name_of(schedule));
    models::TrainSettings settings;
    settings.optimizer.kind = kind;
    settings.optimizer.momentum = momentum;
    settings.weight_decay = 0.01;
    settings.num_epochs = 7;
    settings.optimizer.schedule = {models::RateDecay::linear, 2, 1e-3};
    Training first(grid_, store_, small_model(schedule), settings);
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
    Training second(grid_, store_, small_model(schedule), settings);
    copy_state(first.network.parameters(), *first.update, second.network.parameters(), *second.update);

    for (std::int64_t epoch = 4; epoch <= 7; ++epoch) {
      auto const expected = first.trainer.train_epoch(epoch);
      auto const found = second.trainer.train_epoch(epoch);
      EXPECT_NEAR(found.loss, expected.loss, rounding) << "epoch " << epoch;
      EXPECT_EQ(found.learning_rate, expected.learning_rate) << "epoch " << epoch;
    }
    EXPECT_EQ(second.update->num_steps(), 7);
  }
}

/// A run in one go and one that is interrupted after `num_steps` steps (more than there are: never).
struct Run {
  std::vector<runtime::EpochRecord> records;
  models::TrainResult result;
};
template<class Trainer>
Run run_until(Trainer& trainer, std::int64_t num_steps, models::TrainProgress const& start = {}) {
  Run run;
  run.result = trainer.run([&](runtime::EpochRecord const& record) { run.records.push_back(record); }, start,
                           [&](models::TrainProgress const&) { return --num_steps == 0; });
  return run;
}

/// `first` and then `second` are what `whole` is.
void expect_continued(Run const& whole, Run const& first, Run const& second) {
  auto records = first.records;
  records.insert(records.end(), second.records.begin(), second.records.end());
  ASSERT_EQ(records.size(), whole.records.size());
  for (std::size_t e = 0; e < records.size(); ++e) {
    auto const& expected = whole.records[e];
    EXPECT_EQ(records[e].epoch, expected.epoch);
    EXPECT_NEAR(records[e].loss, expected.loss, rounding) << "epoch " << expected.epoch;
    EXPECT_EQ(records[e].learning_rate, expected.learning_rate) << "epoch " << expected.epoch;
    ASSERT_EQ(records[e].grad_norms.size(), expected.grad_norms.size());
    for (std::size_t l = 0; l < expected.grad_norms.size(); ++l)
      EXPECT_NEAR(records[e].grad_norms[l], expected.grad_norms[l], rounding);
    EXPECT_EQ(records[e].score("val_acc"), expected.score("val_acc"));
    EXPECT_EQ(records[e].score("val_loss").has_value(), expected.score("val_loss").has_value());
    EXPECT_NEAR(records[e].score("val_loss").value_or(0), expected.score("val_loss").value_or(0), rounding);
  }
  auto const& found = second.result.progress;
  auto const& expected = whole.result.progress;
  EXPECT_EQ(found.epoch, expected.epoch);
  EXPECT_EQ(found.best.epoch, expected.best.epoch);
  EXPECT_NEAR(found.best.scores[1].loss, expected.best.scores[1].loss, rounding);
  EXPECT_NEAR(found.last->at(1).loss, expected.last->at(1).loss, rounding);
}

TEST_P(Resume, TheFullGraphGoesOnAfterAnyEpoch) {
  if (grid_.size(pmm::Axis::data) > 1) GTEST_SKIP() << "full-graph training has no data axis";
  models::TrainSettings settings;
  settings.num_epochs = 6;
  settings.eval_every = 2;
  settings.optimizer.schedule = {models::RateDecay::cosine, 3, 1e-3};
  Training training(grid_, store_, small_model(), settings);
  auto const whole = run_until(training.trainer, 100);
  EXPECT_EQ(whole.result.progress.epoch, 7);
  for (std::int64_t const stop : {1, 6}) {
    SCOPED_TRACE(::testing::Message() << "after epoch " << stop);
    Training before(grid_, store_, small_model(), settings);
    auto const first = run_until(before.trainer, stop);
    EXPECT_EQ(first.result.progress.epoch, stop + 1);
    Training after(grid_, store_, small_model(), settings);
    copy_state(before.network.parameters(), *before.update, after.network.parameters(), *after.update);

    auto const second = run_until(after.trainer, 100, first.result.progress);

    expect_continued(whole, first, second);
  }
}

TEST_P(Resume, MiniBatchesGoOnAfterAnyStep) {
  models::TrainSettings settings;
  settings.num_epochs = 4;
  settings.eval_every = 2;
  settings.optimizer.schedule = {models::RateDecay::cosine, 3, 1e-3};
  auto model = small_model();
  for (std::int64_t const num_accumulated : {1, 2}) {
    models::MiniBatchSettings batches;
    batches.batch_size = 13;
    batches.num_accumulated = num_accumulated;
    batches.num_full_epochs = 1;
    models::MiniBatchNetwork<double> training(grid_, store_, model, settings, batches);
    auto const num_steps = training.sampler().num_steps();
    auto const whole = run_until(training, 1000);
    // In the first epoch, in a later one, and before the one on the full graph.
    for (auto const stop : {std::int64_t{1}, 2 * num_steps - 1, 3 * num_steps}) {
      SCOPED_TRACE(::testing::Message() << "accumulating " << num_accumulated << ", after step " << stop);
      models::MiniBatchNetwork<double> before(grid_, store_, model, settings, batches);
      auto const first = run_until(before, stop);
      EXPECT_EQ(first.result.progress.epoch, 1 + stop / num_steps);
      EXPECT_EQ(first.result.progress.step, stop % num_steps);
      models::MiniBatchNetwork<double> after(grid_, store_, model, settings, batches);
      copy_state(before.parameters(), before.update(), after.parameters(), after.update());

      auto const second = run_until(after, 1000, first.result.progress);

      expect_continued(whole, first, second);
    }
  }
}

/// One grid of one data group, and one of two.
std::vector<std::array<int, 4>> resume_grids() {
  auto grids = grids_4d(world_size());
  std::erase_if(grids, [](auto const& shape) { return std::ranges::max(shape) > 2; });
  if (grids.size() > 1) grids = {grids.front(), grids.back()};
  return grids;
}

INSTANTIATE_TEST_SUITE_P(Grids, Resume, ::testing::ValuesIn(resume_grids()), GridName());

} // namespace
} // namespace orthant::testing
