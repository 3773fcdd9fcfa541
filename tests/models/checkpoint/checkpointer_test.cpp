// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints that are taken while a training goes on.
#include "models/checkpoint/checkpoint_fixture.hpp"

#include "models/training/checkpoint/checkpointer.hpp"

#include <filesystem>
#include <gtest/gtest.h>
#include <limits>

namespace orthant::testing {
namespace {

namespace fs = std::filesystem;

class Checkpointer : public ::testing::Test {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, pmm::near_cubic(world_.size())};
  test::ScratchFolder scratch_{MPI_COMM_WORLD};
  std::string folder_ = scratch_.file("checkpoints");
  models::TrainSettings settings_;
  models::NetworkSettings model_ = model_with_features(models::Schedule::pmm3d);

  Checkpointer() {
    settings_.num_epochs = 9;
    settings_.eval_every = 3;
    if (world_.is_root()) fs::create_directories(folder_);
    barrier();
  }
  /// A new folder below that of the test, on all ranks.
  std::string subfolder(std::string const& name) {
    auto path = folder_ + "/" + name;
    if (world_.is_root()) fs::create_directories(path);
    barrier();
    return path;
  }
  void barrier() { ORTHANT_MPI(MPI_Barrier(MPI_COMM_WORLD)); }

  std::vector<double> losses_of(TrainedRun const& run) {
    std::vector<double> losses;
    for (auto const& record : run.records)
      losses.push_back(record.loss);
    return losses;
  }
  /// Losses of all epochs, with checkpoints. `between` is called after every step.
  std::vector<double> train(models::CheckpointSettings const& settings,
                            std::function<void(models::TrainProgress const&)> const& between = {}) {
    FullTraining training(grid_, model_, settings_);
    models::Checkpointer<double> checkpointer(training.state, settings);
    auto const run = run_until(training, 1000, {}, [&](auto const& progress) {
      if (between) between(progress);
      checkpointer.after_step(progress);
      return false;
    });
    checkpointer.save(run.result.progress);
    checkpointer.finish();
    barrier();
    return losses_of(run);
  }
  std::vector<double> train_without() {
    FullTraining training(grid_, model_, settings_);
    return losses_of(run_until(training, 1000));
  }
};

TEST_F(Checkpointer, DoesNotDisturbTheTraining) {
  auto const expected = train_without();
  for (auto const is_asynchronous : {false, true}) {
    SCOPED_TRACE(is_asynchronous);
    auto settings = checkpoints_in(subfolder(is_asynchronous ? "on" : "off"));
    settings.is_asynchronous = is_asynchronous;
    auto num_commits = 0;
    settings.before_commit = [&] { ++num_commits; };

    auto const losses = train(settings);

    EXPECT_EQ(num_commits, world_.is_root() ? 9 : 0);

    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t e = 0; e < losses.size(); ++e)
      EXPECT_NEAR(losses[e], expected[e], rounding);
    EXPECT_EQ(models::checkpoint_numbers(settings.folder), (std::vector<std::int64_t>{8, 9}));
    EXPECT_EQ(fs::read_symlink(settings.folder / "latest"), "checkpoint-000009.h5");
    EXPECT_EQ(test::num_partial_files(settings.folder.string()), 0);
    auto const facts = models::read_checkpoint_facts(world_, models::checkpoint_path(settings.folder, 9));
    EXPECT_EQ(facts.progress.epoch, 10);
    EXPECT_EQ(facts.num_steps, 9);
    EXPECT_EQ(facts.learning_rate, settings_.optimizer.learning_rate);
    EXPECT_NEAR(facts.progress.last_loss, expected.back(), rounding);
    EXPECT_EQ(facts.progress.best.epoch % 3, 0);
    EXPECT_GT(facts.progress.best.epoch, 0);
  }
}

TEST_F(Checkpointer, KeepsTheParametersOfTheBestEpoch) {
  FullTraining training(grid_, model_, settings_);
  models::Checkpointer<double> checkpointer(training.state, checkpoints_in(folder_));
  std::vector<std::vector<double>> of_best(training.state.parameters().size());
  std::int64_t best_epoch = 0;
  run_until(training, 1000, {}, [&](models::TrainProgress const& progress) {
    if (progress.best.epoch != best_epoch)
      for (std::size_t p = 0; p < of_best.size(); ++p)
        models::copy_to_host(training.state.parameters()[p].value(), of_best[p]);
    best_epoch = progress.best.epoch;
    checkpointer.after_step(progress);
    return false;
  });
  checkpointer.finish();
  FullTraining resumed(grid_, model_, settings_);

  auto const point = models::resume_newest(folder_, resumed.state, allow_all);

  ASSERT_TRUE(point.has_value());
  EXPECT_EQ(point->facts.progress.best.epoch, best_epoch);
  ASSERT_TRUE(resumed.state.best());
  EXPECT_EQ(*resumed.state.best(), of_best);
}

TEST_F(Checkpointer, IsDueByTheClockOrByEpochs) {
  auto settings = checkpoints_in(folder_);
  settings.num_kept = 100;
  settings.interval.epochs = 4;
  train(settings);
  EXPECT_EQ(models::checkpoint_numbers(folder_),
            (std::vector<std::int64_t>{4, 8, 9})); // the end is saved, too
  for (auto const step : {4, 8, 9})
    EXPECT_EQ(models::read_checkpoint_facts(world_, models::checkpoint_path(folder_, step)).progress.epoch,
              step + 1);

  settings.folder = subfolder("by_time");
  settings.interval = {0, std::chrono::duration<double>(0)};
  train(settings);
  EXPECT_EQ(models::checkpoint_numbers(settings.folder).size(), 9U);

  settings.folder = subfolder("never");
  settings.interval = {0, std::chrono::hours(1)};
  train(settings);
  EXPECT_EQ(models::checkpoint_numbers(settings.folder).size(), 1U);
}

TEST_F(Checkpointer, WhatCannotBeWrittenDoesNotEndTheTraining) {
  auto const expected = train_without();
  for (auto const is_asynchronous : {false, true}) {
    auto settings = checkpoints_in(subfolder(is_asynchronous ? "on" : "off"));
    settings.is_asynchronous = is_asynchronous;
    auto num_commits = 0;
    settings.before_commit = [&] { ++num_commits; };

    // In epochs 4 to 6 the checkpoint's name is a folder's.
    auto const losses = train(settings, [&](models::TrainProgress const& progress) {
      barrier();
      for (auto const step : {4, 5, 6}) {
        auto const path = models::checkpoint_path(settings.folder, step);
        if (world_.is_root() && progress.epoch == 5) fs::create_directories(path);
        if (world_.is_root() && progress.epoch == 8) fs::remove_all(path);
      }
      barrier();
    });

    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t e = 0; e < losses.size(); ++e)
      EXPECT_NEAR(losses[e], expected[e], rounding);
    EXPECT_EQ(num_commits, world_.is_root() ? 6 : 0); // nine epochs, three of them without
    EXPECT_EQ(models::checkpoint_numbers(settings.folder), (std::vector<std::int64_t>{8, 9}));
    EXPECT_EQ(
        models::read_checkpoint_facts(world_, models::checkpoint_path(settings.folder, 9)).progress.epoch,
        10);
    EXPECT_EQ(test::num_partial_files(settings.folder.string()), 0);
  }
}

TEST_F(Checkpointer, NeverWritesWhatIsNotFinite) {
  FullTraining training(grid_, model_, settings_);
  models::Checkpointer<double> checkpointer(training.state, checkpoints_in(folder_));
  models::TrainProgress progress;
  progress.begin_epoch(2);
  training.state.update().set_num_steps(1);
  checkpointer.save(progress);
  for (auto const& parameter : training.network.parameters())
    if (parameter.name == "layer1.weight")
      Kokkos::deep_copy(parameter.value(), std::numeric_limits<double>::infinity());
  progress.begin_epoch(3);
  training.state.update().set_num_steps(2);

  checkpointer.save(progress);
  checkpointer.finish();

  EXPECT_EQ(models::checkpoint_numbers(folder_), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(test::num_partial_files(folder_), 0);
}

} // namespace
} // namespace orthant::testing
