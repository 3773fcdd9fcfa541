// SPDX-License-Identifier: Apache-2.0
//
// A training that is saved on one grid and goes on on another one has the losses of the one that was never
// interrupted.
#include "models/checkpoint/checkpoint_fixture.hpp"

#include "support/grids.hpp"

#include <filesystem>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using models::Schedule;

/// Losses, of which the first `num_before` are those before the checkpoint.
void expect_goes_on(TrainedRun const& whole, TrainedRun const& second, std::size_t num_before,
                    bool is_same_grid) {
  ASSERT_EQ(second.records.size() + num_before, whole.records.size());
  auto const most = is_same_grid ? rounding : 1e-10;
  for (std::size_t e = 0; e < second.records.size(); ++e) {
    auto const& expected = whole.records[num_before + e];
    auto const& found = second.records[e];
    EXPECT_EQ(found.epoch, expected.epoch);
    EXPECT_NEAR(found.loss, expected.loss, most) << "epoch " << expected.epoch;
    EXPECT_EQ(found.score("val_acc"), expected.score("val_acc")) << "epoch " << expected.epoch;
    EXPECT_NEAR(found.score("val_loss").value_or(0), expected.score("val_loss").value_or(0), most);
  }
  auto const& best = second.result.progress.best;
  EXPECT_EQ(best.epoch, whole.result.progress.best.epoch);
  EXPECT_NEAR(best.scores[1].loss, whole.result.progress.best.scores[1].loss, most);
}

class OtherGrid : public ::testing::Test {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  test::ScratchFolder scratch_{MPI_COMM_WORLD};
  int num_folders_ = 0;

  std::string new_folder() {
    auto path = scratch_.file("checkpoints" + std::to_string(num_folders_++));
    std::filesystem::create_directories(path);
    return path;
  }

  void full_graph(Schedule from, Schedule to, graph::PermutationKind permutation) {
    auto const grids =
        grids_up_to(world_.size(), {{1, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 2}, {1, 3, 1, 2}, {1, 2, 2, 2}});
    models::TrainSettings settings;
    settings.num_epochs = 14;
    settings.eval_every = 2;
    settings.weight_decay = 0.01;
    constexpr std::size_t num_before = 4;
    for (auto const& a : grids) {
      auto const folder = new_folder();
      TrainedRun whole;
      Part const saver(world_, a);
      if (saver.grid() != nullptr) {
        FullTraining uninterrupted(*saver.grid(), model_with_features(from), settings);
        whole = run_until(uninterrupted, 1000);
        FullTraining before(*saver.grid(), model_with_features(from), settings);
        auto const first = run_until(before, num_before);
        save(before.state, folder, first.result.progress);
      }
      for (auto const& b : grids) {
        SCOPED_TRACE(grid_name(a) + " to " + grid_name(b));
        ORTHANT_MPI(MPI_Barrier(MPI_COMM_WORLD));
        Part const resumer(world_, b);
        if (resumer.grid() == nullptr) continue;
        FullTraining after(*resumer.grid(), model_with_features(to), settings, permutation);
        auto const point = models::resume_newest(folder, after.state, allow_all);
        auto const has_point = point.has_value();
        EXPECT_TRUE(has_point);
        if (!has_point) continue;
        EXPECT_EQ(after.update->num_steps(), static_cast<std::int64_t>(num_before));
        auto const second = run_until(after, 1000, point->facts.progress);
        if (saver.grid() != nullptr) {
          auto const is_same = a == b && from == to && permutation == graph::PermutationKind::twofold;
          expect_goes_on(whole, second, num_before, is_same);
        }
      }
    }
  }
};

TEST_F(OtherGrid, FullGraphAndItsTrainedFeaturesGoOn) {
  full_graph(Schedule::pmm3d, Schedule::pmm3d, graph::PermutationKind::twofold);
}
TEST_F(OtherGrid, RowsGoOnAsRows) {
  full_graph(Schedule::rows, Schedule::rows, graph::PermutationKind::twofold);
}
TEST_F(OtherGrid, RowsGoOnAsProductsOnThreeAxes) {
  full_graph(Schedule::rows, Schedule::pmm3d, graph::PermutationKind::twofold);
}
TEST_F(OtherGrid, ProductsOnThreeAxesGoOnAsRows) {
  full_graph(Schedule::pmm3d, Schedule::rows, graph::PermutationKind::twofold);
}
TEST_F(OtherGrid, AnotherPermutationOfTheGraphGoesOn) {
  full_graph(Schedule::pmm3d, Schedule::pmm3d, graph::PermutationKind::natural);
  full_graph(Schedule::rows, Schedule::rows, graph::PermutationKind::cluster);
}

/// Two batches make a step, whether of one group or of two.
models::MiniBatchSettings batches_on(Shape const& shape) {
  models::MiniBatchSettings batches;
  batches.batch_size = 13;
  batches.num_accumulated = 2 / shape[0];
  return batches;
}

TEST_F(OtherGrid, MiniBatchesGoOnWithinAnEpoch) {
  auto const grids = grids_up_to(
      world_.size(), {{1, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 2}, {1, 3, 1, 2}, {1, 2, 2, 2}, {2, 1, 2, 1}});
  models::TrainSettings settings;
  settings.num_epochs = 5;
  settings.eval_every = 2;
  auto const model = model_with_features(Schedule::pmm3d);
  for (auto const& a : grids) {
    auto const folder = new_folder();
    TrainedRun whole;
    std::size_t num_before = 0;
    Part const saver(world_, a);
    if (saver.grid() != nullptr) {
      BatchTraining uninterrupted(*saver.grid(), model, settings, batches_on(a));
      whole = run_until(uninterrupted, 1000);
      BatchTraining before(*saver.grid(), model, settings, batches_on(a));
      auto const num_steps = before.trainer.sampler().num_steps();
      EXPECT_GT(num_steps, 2);
      auto const first = run_until(before, 2 * num_steps + 2);
      EXPECT_EQ(first.result.progress.step, 2);
      num_before = first.records.size();
      save(before.state, folder, first.result.progress);
    }
    for (auto const& b : grids) {
      SCOPED_TRACE(grid_name(a) + " to " + grid_name(b));
      ORTHANT_MPI(MPI_Barrier(MPI_COMM_WORLD));
      Part const resumer(world_, b);
      if (resumer.grid() == nullptr) continue;
      BatchTraining after(*resumer.grid(), model, settings, batches_on(b));
      auto const point = models::resume_newest(folder, after.state, allow_all);
      auto const has_point = point.has_value();
      EXPECT_TRUE(has_point);
      if (!has_point) continue;
      auto const second = run_until(after, 1000, point->facts.progress);
      if (saver.grid() != nullptr) expect_goes_on(whole, second, num_before, a == b);
    }
  }
}

} // namespace
} // namespace orthant::testing
