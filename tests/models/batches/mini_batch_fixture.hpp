#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Short trainings on mini-batches of a small graph, and their losses on a grid beside those on one rank.
#include "models/gnn/batches/mini_batch.hpp"

#include "models/models_fixture.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace orthant::testing {

using models::MiniBatchSettings;

inline constexpr auto graph_text = "sbm:vertices=203,edges=1500,features=13,classes=5";

inline models::NetworkSettings small_model() {
  models::NetworkSettings settings;
  settings.set_layers(3, 9);
  settings.dropout = 0.4;
  settings.seed = 11;
  return settings;
}

inline models::TrainSettings short_training(std::int64_t num_epochs) {
  models::TrainSettings settings;
  settings.num_epochs = num_epochs;
  settings.weight_decay = 1e-3;
  settings.eval_every = num_epochs;
  return settings;
}

/// 203 vertices in 5 batches of 40 or 41.
inline MiniBatchSettings small_batches() {
  MiniBatchSettings settings;
  settings.batch_size = 41;
  return settings;
}

struct TrainedRun {
  std::vector<double> step_losses; // of all mini-batch epochs
  std::vector<runtime::EpochRecord> records;
};

inline TrainedRun train_in_batches(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                   models::NetworkSettings const& model,
                                   models::TrainSettings const& settings, MiniBatchSettings const& batches) {
  models::MiniBatchNetwork<double> trainer(grid, store, model, settings, batches);
  TrainedRun run;
  trainer.run([&](runtime::EpochRecord const& record) {
    run.records.push_back(record);
    if (record.epoch > settings.num_epochs - batches.num_full_epochs) return;
    auto const& losses = trainer.step_losses();
    run.step_losses.insert(run.step_losses.end(), losses.begin(), losses.end());
  });
  return run;
}

inline void expect_equal(TrainedRun const& found, TrainedRun const& expected) {
  ASSERT_EQ(found.step_losses.size(), expected.step_losses.size());
  for (std::size_t s = 0; s < found.step_losses.size(); ++s)
    EXPECT_NEAR(found.step_losses[s], expected.step_losses[s], 1e-10) << "step " << s;
  ASSERT_EQ(found.records.size(), expected.records.size());
  for (std::size_t e = 0; e < found.records.size(); ++e) {
    EXPECT_NEAR(found.records[e].loss, expected.records[e].loss, 1e-10) << "epoch " << e + 1;
    ASSERT_FALSE(expected.records[e].grad_norms.empty());
    ASSERT_EQ(found.records[e].grad_norms.size(), expected.records[e].grad_norms.size());
    for (std::size_t l = 0; l < found.records[e].grad_norms.size(); ++l)
      EXPECT_NEAR(found.records[e].grad_norms[l], expected.records[e].grad_norms[l], 1e-9);
    EXPECT_EQ(found.records[e].score("test_acc"), expected.records[e].score("test_acc"));
    auto const loss = expected.records[e].score("test_loss");
    ASSERT_EQ(found.records[e].score("test_loss").has_value(), loss.has_value());
    if (loss) {
      EXPECT_NEAR(*found.records[e].score("test_loss"), *loss, 1e-9);
    }
  }
}

class MiniBatch : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  MiniBatch()
      : world_(MPI_COMM_WORLD, "world"),
        self_(MPI_COMM_SELF, "self"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}),
        one_(self_, {1, 1, 1, 1}) {}

  /// The losses on the grid equal those of one rank, which accumulates as many batches as there are groups.
  TrainedRun expect_equal_losses(models::NetworkSettings const& model, models::TrainSettings const& settings,
                                 MiniBatchSettings const& batches,
                                 std::string const& description = graph_text,
                                 graph::PermutationKind permutation = graph::PermutationKind::twofold,
                                 std::int64_t num_clusters = 0) {
    auto accumulated = batches;
    accumulated.num_accumulated *= grid_.size(pmm::Axis::data);
    auto expected = train_in_batches(
        one_, store_of_dataset(self_, description, graph::PermutationKind::twofold, num_clusters), model,
        settings, accumulated);
    auto const found = train_in_batches(
        grid_, store_of_dataset(world_, description, permutation, num_clusters), model, settings, batches);
    expect_equal(found, expected);
    return expected;
  }

  runtime::Communicator world_;
  runtime::Communicator self_;
  pmm::ProcessGrid grid_;
  pmm::ProcessGrid one_;
};

/// Every grid of one and of two data groups.
inline std::vector<std::array<int, 4>> batch_grids(int num_ranks) {
  auto grids = grids_4d(num_ranks);
  std::erase_if(grids, [](std::array<int, 4> const& shape) { return shape[0] > 2; });
  return grids;
}

} // namespace orthant::testing
