// SPDX-License-Identifier: Apache-2.0
//
// The learning rate of every step: by hand, against figures of PyTorch's schedulers, and as trainings use it.
#include "models/training/learning_rate.hpp"

#include "models/gnn/batches/mini_batch.hpp"
#include "models_fixture.hpp"

#include <gtest/gtest.h>
#include <numbers>

namespace orthant::testing {
namespace {

using models::RateDecay, models::RateSchedule;

constexpr auto decays = {RateDecay::constant, RateDecay::linear, RateDecay::cosine, RateDecay::wsd};

/// Of all steps of a training.
std::vector<double> rates(RateSchedule const& schedule, double rate) {
  std::vector<double> result;
  for (std::int64_t t = 1; t <= schedule.num_steps; ++t)
    result.push_back(models::learning_rate_at(schedule, rate, static_cast<double>(t)));
  return result;
}

void expect_near(std::vector<double> const& found, std::vector<double> const& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-15) << "step " << i + 1;
}

TEST(LearningRate, WarmsUpFromZeroAndDecaysByHand) {
  expect_near(rates({RateDecay::constant, 4, 0, 6}, 0.1), {0.025, 0.05, 0.075, 0.1, 0.1, 0.1});
  expect_near(rates({RateDecay::linear, 4, 0, 9}, 0.1), {0.025, 0.05, 0.075, 0.1, 0.08, 0.06, 0.04, 0.02, 0});
  expect_near(rates({RateDecay::linear, 2, 0.02, 6}, 0.1), {0.05, 0.1, 0.08, 0.06, 0.04, 0.02});
  expect_near(rates({RateDecay::cosine, 2, 0, 6}, 1),
              {0.5, 1, (1 + std::numbers::sqrt2 / 2) / 2, 0.5, (1 - std::numbers::sqrt2 / 2) / 2, 0});
  expect_near(rates({RateDecay::cosine, 1, 0.5, 4}, 1), {1, 0.875, 0.625, 0.5}); // cos(pi / 3) = 1 / 2
}

/// As PyTorch's StepLR(step_size 3, gamma 0.5) has them behind a warm-up of 2 steps, and not below the least rate.
TEST(LearningRate, FallsInSteps) {
  RateSchedule schedule{RateDecay::step, 2, 0.015, 10};
  schedule.step_length = 3;
  schedule.factor = 0.5;

  expect_near(rates(schedule, 0.1), {0.05, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025});
  schedule.num_steps = 14;
  EXPECT_NEAR(models::learning_rate_at(schedule, 0.1, 14), 0.015, 1e-15);
}

/// For s = 0, 1, .. and T steps, PyTorch has
///
///   LambdaLR(optimizer, lambda s: min((s + 1) / w, 1, (T - 1 - s) / (T - b)))     b = (1 - share) T >= w
///   LambdaLR(optimizer, lambda s: min((s + 1) / w, math.sqrt(w / (s + 1))))
TEST(LearningRate, StaysAndThenFallsToTheEndOrAsTheInverseRoot) {
  RateSchedule stable{RateDecay::wsd, 2, 0, 8};
  stable.decay_share = 0.5;
  // LambdaLR(lambda s: min((s + 1) / 2, 1, (7 - s) / 4)) of lr 0.2
  expect_near(rates(stable, 0.2), {0.1, 0.2, 0.2, 0.2, 0.15, 0.1, 0.05, 0});
  stable.min_rate = 0.1;
  expect_near(rates(stable, 0.2), {0.1, 0.2, 0.2, 0.2, 0.175, 0.15, 0.125, 0.1});
  // The decay begins after the warm-up, and between steps.
  expect_near(rates({RateDecay::wsd, 4, 0, 5}, 1), {0.25, 0.5, 0.75, 1, 0});
  expect_near(rates({RateDecay::wsd, 0, 0, 7}, 1), {1, 1, 1, 1, 1, 1 / 1.4, 0});

  // LambdaLR(lambda s: min((s + 1) / 4, math.sqrt(4 / (s + 1)))) of lr 0.1
  expect_near(rates({RateDecay::inverse_sqrt, 4, 0, 9}, 0.1),
              {0.025, 0.05, 0.075, 0.1, 0.08944271909999159, 0.08164965809277261, 0.07559289460184544,
               0.07071067811865475, 0.06666666666666667});
  expect_near(rates({RateDecay::inverse_sqrt, 0, 0.06, 4}, 0.1), {0.1, 0.07071067811865475, 0.06, 0.06});
  EXPECT_FALSE(RateSchedule{RateDecay::inverse_sqrt}.ends_with_training());
}

/// PyTorch's ReduceLROnPlateau(factor 0.1, patience 2) falls after the third loss in a row that is no better.
TEST(LearningRate, FallsAtPlateaus) {
  RateSchedule schedule{RateDecay::plateau, 0, 0.002, 100};
  schedule.plateau_patience = 2;
  models::Plateau plateau;
  std::vector<double> found;
  for (auto const loss : {3.0, 2.0, 2.5, 1.99985, 2.1, 2.1, 1.5, 1.6, 1.6, 1.6, 1.6}) {
    plateau.add(schedule, loss); // 1.99985 is no 10,000th less than 2
    found.push_back(models::learning_rate_at(schedule, 0.1, 50, plateau.reduction));
  }

  expect_near(found, {0.1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01, 0.01, 0.002, 0.002});
}

/// For s = 0, 1, .. and T steps, PyTorch has
///
///   CosineAnnealingLR(optimizer, T_max = T - 1, eta_min)    eta_min + (lr - eta_min) (1 + cos(pi s / T_max)) / 2
///   LinearLR(optimizer, 1, end_factor, T - 1)               lr (1 + (end_factor - 1) s / (T - 1))
///   LambdaLR(optimizer, lambda s: (s + 1) / w if s < w else (T - 1 - s) / (T - w))
TEST(LearningRate, IsThatOfPyTorchsSchedulers) {
  // CosineAnnealingLR(T_max=4, eta_min=0.01) of lr 0.1
  expect_near(rates({RateDecay::cosine, 0, 0.01, 5}, 0.1),
              {0.1, 0.08681980515339464, 0.055, 0.023180194846605364, 0.01});
  // LinearLR(start_factor=1, end_factor=0.1, total_iters=3) of lr 0.1
  expect_near(rates({RateDecay::linear, 0, 0.01, 4}, 0.1), {0.1, 0.07, 0.04, 0.01});
  // LambdaLR(lambda s: (s + 1) / 3 if s < 3 else (7 - s) / 5) of lr 0.3
  expect_near(rates({RateDecay::linear, 3, 0, 8}, 0.3), {0.1, 0.2, 0.3, 0.24, 0.18, 0.12, 0.06, 0});
}

TEST(LearningRate, BeginsAndEndsExactlyAtWhatWasAskedFor) {
  for (auto const decay : {RateDecay::linear, RateDecay::cosine})
    for (std::int64_t const num_warmup_steps : {0, 1, 2, 7, 998, 999})
      for (auto const& [rate, least] : {std::pair(0.1, 0.0), std::pair(0.3, 0.1), std::pair(1e-3, 7e-4)}) {
        auto const all = rates({decay, num_warmup_steps, least, 1000}, rate);
        auto const first = static_cast<std::size_t>(std::max<std::int64_t>(num_warmup_steps, 1) - 1);
        EXPECT_EQ(all[first], rate);
        EXPECT_EQ(all.back(), least);
        for (std::size_t i = 0; i < first; ++i)
          EXPECT_LT(all[i], all[i + 1]) << "step " << i + 1 << " warms up";
        for (auto i = first; i + 1 < all.size(); ++i)
          EXPECT_GT(all[i], all[i + 1]) << "step " << i + 1 << " decays";
        EXPECT_EQ(models::learning_rate_at({decay, num_warmup_steps, least, 1000}, rate, 1001), least);
      }
}

TEST(LearningRate, OfASingleStepAndOfNoScheduleIsTheWholeOne) {
  for (auto const decay : decays)
    expect_near(rates({decay, 0, 0.01, 1}, 0.1), {0.1});
  for (auto const t : {1.0, 2.0, 1e9})
    EXPECT_EQ(models::learning_rate_at({}, 0.1, t), 0.1);
}

TEST(LearningRate, NeedsAStepAfterTheWarmUpAndAKnownEnd) {
  models::TrainSettings settings;
  settings.optimizer.schedule.num_warmup_steps = 5;
  for (auto const decay : decays) {
    settings.optimizer.schedule.decay = decay;
    EXPECT_EQ(models::with_num_steps(settings, 6).optimizer.schedule.num_steps, 6);
    for (std::int64_t const num_steps : {0, 1, 5})
      try {
        static_cast<void>(models::with_num_steps(settings, num_steps));
        ADD_FAILURE() << "5 of " << num_steps << " steps warm up";
      } catch (runtime::UserError const& error) {
        EXPECT_EQ(std::string(error.what()),
                  fmt::format("--warmup-steps 5 of a training of {} steps; leave at least one step after the "
                              "warm-up",
                              num_steps));
      }
  }
  EXPECT_EQ(models::with_num_steps({}, 0).optimizer.schedule.num_steps, 0);
  EXPECT_THROW(models::Optimizer<double>(settings.optimizer, {}), runtime::Error)
      << "cosine to nobody knows where";
  EXPECT_THROW(static_cast<void>(models::parse_rate_decay("cosin")), runtime::UserError);
}

/// What the records of a training say, and what they should: one rate per epoch, of its last step.
void expect_recorded(std::vector<runtime::EpochRecord> const& records, RateSchedule const& schedule,
                     std::vector<std::int64_t> const& last_steps) {
  ASSERT_EQ(records.size(), last_steps.size());
  EXPECT_EQ(last_steps.back(), schedule.num_steps);
  for (std::size_t e = 0; e < records.size(); ++e)
    EXPECT_NEAR(records[e].learning_rate,
                models::learning_rate_at(schedule, 0.01, static_cast<double>(last_steps[e])), 1e-17)
        << "epoch " << e + 1;
}

TEST(LearningRate, CountsEpochsOfTheFullGraphAndStepsOfMiniBatches) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  auto const store = store_of_dataset(world, "sbm:vertices=103,edges=500,features=13,classes=5");
  models::NetworkSettings model;
  model.set_layers(2, 9);
  models::TrainSettings settings;
  settings.num_epochs = 5;
  for (auto const decay : decays) {
    auto& schedule = settings.optimizer.schedule;
    schedule = {decay, 2, 1e-3};
    std::vector<runtime::EpochRecord> records;
    auto const keep = [&](runtime::EpochRecord const& record) { records.push_back(record); };
    pmm::ProcessGrid const grid(world, pmm::near_cubic(world.size()));
    models::GraphNetwork<double> network(grid, store, model);
    auto loss = models::make_vertex_loss<double>(grid, store, network.plan().logits());

    models::Trainer<double>(grid, network, loss, settings).run(keep);

    schedule.num_steps = 5;
    expect_recorded(records, schedule, {1, 2, 3, 4, 5});

    // Three epochs of 103 / 26 batches, of which two make a step, and two epochs on the full graph.
    models::MiniBatchSettings batches;
    batches.batch_size = 26;
    batches.num_accumulated = 2;
    batches.num_full_epochs = 2;
    models::MiniBatchNetwork<double> trainer(grid, store, model, settings, batches);
    ASSERT_EQ(trainer.sampler().num_steps(), 2);
    records.clear();

    trainer.run(keep);

    schedule.num_steps = 8;
    expect_recorded(records, schedule, {2, 4, 6, 7, 8});
  }
}

} // namespace
} // namespace orthant::testing
