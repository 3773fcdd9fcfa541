// SPDX-License-Identifier: Apache-2.0
//
// Mini-batch training: the same losses on every grid, data groups that train as one group which accumulates,
// full-graph evaluation and last epochs, and what is refused.
#include "batches/mini_batch_fixture.hpp"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <set>
#include <string_view>

namespace orthant::testing {
namespace {

TEST_P(MiniBatch, ThirtyStepsWithDropout) {
  auto const run = expect_equal_losses(small_model(), short_training(6), small_batches());
  if (grid_.size(pmm::Axis::data) == 1) {
    EXPECT_EQ(run.step_losses.size(), 30U);
  }
  EXPECT_LT(run.records.back().loss, run.records.front().loss) << "it does not learn";
}

// Blocks of 9, 13 and 5 columns are unequal on most grids.
TEST_P(MiniBatch, EncodedSumsOfGradientsKeepCopiesEqual) {
  auto model = small_model();
  model.norm = models::Norm::layer;
  model.has_head = true;
  auto const store = store_of_dataset(world_, graph_text);
  for (auto const wire : {runtime::Wire::bf16, runtime::Wire::fp8, runtime::Wire::int8}) {
    auto settings = short_training(4);
    settings.optimizer.gradient_wire = wire;
    models::MiniBatchNetwork<float> trainer(grid_, store, model, settings, small_batches());
    std::vector<double> losses;
    trainer.run([&](runtime::EpochRecord const& record) { losses.push_back(record.loss); });
    EXPECT_LT(losses.back(), losses.front()) << "it does not learn";
    expect_equal_copies(grid_, trainer.parameters());
  }
}

TEST_P(MiniBatch, BothProductOrdersAndPermutations) {
  auto model = small_model();
  model.order = models::ProductOrder::aggregate_first;
  expect_equal_losses(model, short_training(1), small_batches(), graph_text, graph::PermutationKind::single);
  model.order = models::ProductOrder::transform_first;
  expect_equal_losses(model, short_training(1), small_batches(), graph_text, graph::PermutationKind::natural);
}

TEST_P(MiniBatch, AccumulatedBatchesOfEveryGroupOnADirectedGraph) {
  auto batches = small_batches();
  batches.num_accumulated = 2;
  expect_equal_losses(small_model(), short_training(3), batches,
                      "sbm:vertices=203,edges=1500,features=13,classes=5,directed=1");
}

TEST_P(MiniBatch, ProjectionNormResidualsAndHead) {
  auto model = small_model();
  model.projected_width = 9;
  model.norm = models::Norm::rms;
  model.has_residuals = true;
  model.has_head = true;
  expect_equal_losses(model, short_training(3), small_batches());
  model.order = models::ProductOrder::transform_first;
  expect_equal_losses(model, short_training(1), small_batches(), graph_text, graph::PermutationKind::single);
}

// Evaluations go by statistics of the batches of all groups.
TEST_P(MiniBatch, LayerNormAndBatchNorm) {
  for (auto const norm : {models::Norm::layer, models::Norm::batch})
    for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows}) {
      auto model = small_model();
      model.norm = norm;
      model.schedule = schedule;
      model.has_residuals = schedule == models::Schedule::rows;
      auto settings = short_training(3);
      settings.eval_every = 1;
      auto batches = small_batches();
      batches.num_full_epochs = 1;
      auto const run = expect_equal_losses(model, settings, batches);
      EXPECT_LT(run.records.back().loss, run.records.front().loss) << "it does not learn";
    }
}

// A batch reads its rows of the features; the gradient of all others is 0. The full graph reads all of them.
TEST_P(MiniBatch, TrainedFeatures) {
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (auto const projected_width : {0, 9}) {
      auto model = small_model();
      model.trains_features = true;
      model.schedule = schedule;
      model.projected_width = projected_width;
      auto settings = short_training(3);
      settings.eval_every = 1;
      auto batches = small_batches();
      batches.num_full_epochs = 1;
      expect_equal_losses(model, settings, batches);
    }
  auto model = small_model();
  model.trains_features = true;
  set_model(model, models::Model::gin);
  model.set_layers(2, 5);
  auto batches = small_batches();
  batches.batch_size = 8; // as many as the longest axis has ranks
  expect_equal_losses(model, short_training(1), batches, "ring:vertices=67,features=3,classes=2");
}

TEST_P(MiniBatch, EveryLoss) {
  using models::ClassWeights;
  using models::LossFunction;
  for (auto const& loss : {models::VertexLossSettings{ClassWeights::balanced, 0.1},
                           {ClassWeights::balanced, 0.1, LossFunction::binary},
                           {ClassWeights::none, 0.1, LossFunction::focal, 1.5}}) {
    auto settings = short_training(2);
    settings.loss = loss;
    expect_equal_losses(small_model(), settings, small_batches());
  }
}

TEST_P(MiniBatch, StrataOfTrainingVertices) {
  auto batches = small_batches();
  batches.train_fraction = 0.5;
  expect_equal_losses(small_model(), short_training(2), batches);
}

TEST_P(MiniBatch, BatchesThatLeaveRanksWithoutRows) {
  auto model = small_model();
  model.set_layers(2, 5);
  auto batches = small_batches();
  batches.batch_size = 8; // as many as the longest axis has ranks
  expect_equal_losses(model, short_training(1), batches, "ring:vertices=67,features=3,classes=2");
}

TEST_P(MiniBatch, StepsWithoutTrainingVerticesHaveNoLossAndNoGradient) {
  auto model = small_model();
  model.dropout = 0;
  auto settings = short_training(1);
  settings.weight_decay = 0;
  auto batches = small_batches();
  batches.batch_size = 8;
  auto const description = "ring:vertices=67,features=3,classes=2,train=0.05,valid=0.4,test=0.5";
  expect_equal_losses(model, settings, batches, description);
  auto const store = store_of_dataset(world_, description);
  auto const ids = store.read_original_ids(graph::Order::p2, {0, 67});
  auto const mask = store.read_mask(graph::Split::train, graph::Order::p2, {0, 67});
  std::set<std::int64_t> training;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (mask[i] != 0) training.insert(ids[i]);
  models::MiniBatchNetwork<double> trainer(grid_, store, model, settings, batches);
  auto last_norm = 0.0;
  trainer.run([&](runtime::EpochRecord const& record) { last_norm = record.grad_norms[0]; });
  auto const& sampler = trainer.sampler();
  auto const trains = [&](std::int64_t step) {
    sampling::BatchKeys keys; // of one stratum: original ids
    for (std::int64_t group = 0; group < grid_.size(pmm::Axis::data); ++group) {
      sampler.draw(1, sampler.batch_of(step, group), keys);
      if (std::ranges::any_of(keys.keys, [&](auto id) { return training.contains(id); })) return true;
    }
    return false;
  };

  auto num_idle = 0;
  for (std::int64_t step = 0; step < sampler.num_steps(); ++step) {
    EXPECT_EQ(trainer.step_losses()[static_cast<std::size_t>(step)] > 0, trains(step)) << "step " << step;
    num_idle += trains(step) ? 0 : 1;
  }
  EXPECT_GT(num_idle, 0) << "the test has no such step";
  EXPECT_EQ(last_norm > 0, trains(sampler.num_steps() - 1));
}

TEST_P(MiniBatch, LastEpochsOnTheFullGraphContinue) {
  auto batches = small_batches();
  batches.num_full_epochs = 2;
  expect_equal_losses(small_model(), short_training(4), batches);

  // The first full-graph loss is that of the weights that the batches left.
  auto model = small_model();
  model.dropout = 0;
  auto const store = store_of_dataset(world_, graph_text);
  batches.num_full_epochs = 0;
  models::MiniBatchNetwork<double> before(grid_, store, model, short_training(2), batches);
  auto const result = before.run([](runtime::EpochRecord const&) {});
  batches.num_full_epochs = 1;
  auto const run = train_in_batches(grid_, store, model, short_training(3), batches);
  EXPECT_NEAR(run.records.back().loss, result.progress.last->at(0).loss, 1e-12);
}

TEST_P(MiniBatch, EvaluationIsThatOfTheFullGraphWithTheseWeights) {
  auto const store = store_of_dataset(world_, graph_text);
  models::MiniBatchNetwork<double> trainer(grid_, store, small_model(), short_training(2), small_batches());
  auto const scores = *trainer.run([](runtime::EpochRecord const&) {}).progress.last;
  models::GraphNetwork<double> model(grid_, store, small_model());
  for (std::size_t p = 0; p < model.parameters().size(); ++p)
    Kokkos::deep_copy(model.parameters()[p].value(), trainer.parameters()[p].value());
  auto loss = models::make_vertex_loss<double>(grid_, store, model.plan().logits());
  models::Trainer<double> full(grid_, model, loss, short_training(1));

  auto const expected = full.evaluate();

  for (std::size_t s = 0; s < scores.size(); ++s) {
    EXPECT_EQ(scores[s].num_correct, expected[s].num_correct);
    EXPECT_NEAR(scores[s].loss, expected[s].loss, 1e-14);
  }
}

TEST_P(MiniBatch, PrefetchingChangesNothing) {
  auto const store = store_of_dataset(world_, graph_text);
  auto batches = small_batches();
  auto const ahead = train_in_batches(grid_, store, small_model(), short_training(3), batches);
  batches.prefetch = models::Prefetch::none;
  auto const in_line = train_in_batches(grid_, store, small_model(), short_training(3), batches);

  EXPECT_EQ(ahead.step_losses, in_line.step_losses);
  if (!pmm::runs_on_host) return; // a device's clock times the wait, the host's the sampling
  for (auto const& record : in_line.records)
    EXPECT_GE(record.phases.seconds("sampling_wait"), record.phases.seconds("sampling"));
}

/// Arrays of the full graph's adjacency that were made since begin(), by their label. Batches have others.
struct FullGraphArrays {
  static void begin() {
    count = 0;
    Kokkos::Tools::Experimental::set_allocate_data_callback(
        [](Kokkos::Tools::SpaceHandle, char const* label, void const*, std::uint64_t) {
          count += std::string_view(label).starts_with("orthant::models::csr/") ? 1 : 0;
        });
  }
  static int end() {
    Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
    return count;
  }
  static inline std::atomic<int> count{0}; // a batch is filled by another thread
};

TEST_P(MiniBatch, WithoutEvaluationThereIsNoFullGraph) {
  auto const store = store_of_dataset(world_, graph_text);
  auto settings = short_training(2);

  settings.eval_every = 0;
  FullGraphArrays::begin();
  models::MiniBatchNetwork<double> trainer(grid_, store, small_model(), settings, small_batches());
  std::vector<runtime::EpochRecord> records;
  auto const result = trainer.run([&](runtime::EpochRecord const& record) { records.push_back(record); });
  auto const num_arrays = FullGraphArrays::end();
  settings.eval_every = 2;
  FullGraphArrays::begin();
  models::MiniBatchNetwork<double> evaluating(grid_, store, small_model(), settings, small_batches());
  auto const num_arrays_of_evaluation = FullGraphArrays::end();

  EXPECT_EQ(num_arrays, 0);
  EXPECT_GT(num_arrays_of_evaluation, 0)
      << "the label that is looked for is no longer that of the full graph";
  EXPECT_THROW(static_cast<void>(trainer.evaluate()), runtime::Error);
  EXPECT_FALSE(result.progress.last.has_value());
  EXPECT_EQ(result.progress.best.epoch, 0);
  ASSERT_EQ(records.size(), 2U);
  for (auto const& record : records) {
    EXPECT_GT(record.loss, 0);
    EXPECT_FALSE(record.score("train_acc").has_value() || record.score("val_acc").has_value() ||
                 record.score("test_acc").has_value());
    EXPECT_FALSE(record.score("val_loss").has_value() || record.score("test_loss").has_value());
  }
}

TEST_P(MiniBatch, SparseFeaturesOfCora) {
  if (datasets_folder().empty()) GTEST_SKIP() << "ORTHANT_DATA is not set";
  auto batches = small_batches();
  batches.batch_size = 700;
  auto model = small_model();
  model.feature_norm = models::FeatureNorm::row;
  auto const folder = datasets_folder() / "cora";
  auto accumulated = batches;
  accumulated.num_accumulated = grid_.size(pmm::Axis::data);
  auto const settings = short_training(2);

  auto const expected = train_in_batches(one_, store_of_folder(self_, folder), model, settings, accumulated);
  expect_equal(train_in_batches(grid_, store_of_folder(world_, folder), model, settings, batches), expected);
}

TEST_P(MiniBatch, WhatCannotBeTrainedIsTheUsersMistake) {
  auto const store = store_of_dataset(world_, graph_text);
  auto const refuses = [&](models::NetworkSettings const& model, models::TrainSettings const& settings,
                           MiniBatchSettings const& batches) {
    EXPECT_THROW(models::MiniBatchNetwork<double>(grid_, store, model, settings, batches),
                 runtime::UserError);
  };
  auto batches = small_batches();
  batches.batch_size = 204;
  refuses(small_model(), short_training(1), batches);
  batches.batch_size = 1;
  refuses(small_model(), short_training(1), batches);
  batches.batch_size =
      std::max({grid_.size(pmm::Axis::x), grid_.size(pmm::Axis::y), grid_.size(pmm::Axis::z)}) - 1;
  refuses(small_model(), short_training(1), batches);
  batches = small_batches();
  batches.num_full_epochs = 2;
  refuses(small_model(), short_training(1), batches);
  batches = small_batches();
  batches.batch_size = 203;
  if (grid_.size(pmm::Axis::data) > 1) refuses(small_model(), short_training(1), batches);
}

INSTANTIATE_TEST_SUITE_P(AllGrids, MiniBatch, ::testing::ValuesIn(batch_grids(world_size())), GridName());

} // namespace
} // namespace orthant::testing
