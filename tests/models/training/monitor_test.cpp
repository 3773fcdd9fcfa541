// SPDX-License-Identifier: Apache-2.0
//
// The best epoch and the evaluations without gain, by accuracy, loss and both, against lists made by hand.
#include "models/training/training_run.hpp"

#include "support/user_messages.hpp"

#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {
namespace {

/// Of 10 validation vertices.
models::Scores validated(std::int64_t num_correct, double loss) {
  models::Scores scores;
  auto& valid = scores[static_cast<std::size_t>(graph::Split::valid)];
  valid.num_counted = 10;
  valid.num_correct = num_correct;
  valid.loss = loss;
  return scores;
}

struct Found {
  std::vector<std::int64_t> best;
  std::vector<std::int64_t> without_gain;
};

/// After each of eight evaluations.
Found found_by(models::Monitor monitor) {
  std::vector const evaluations{validated(3, 2.0), validated(5, 2.5), validated(5, 1.0), validated(4, 1.0),
                                validated(4, 1.5), validated(6, 1.2), validated(6, 0.5), validated(5, 0.6)};
  models::TrainProgress progress;
  Found found;
  std::int64_t epoch = 0;
  for (auto const& scores : evaluations) {
    progress.add_evaluation(monitor, ++epoch, scores);
    found.best.push_back(progress.best.epoch);
    found.without_gain.push_back(progress.num_without_gain);
    EXPECT_EQ(progress.last->at(1).loss, scores[1].loss);
    EXPECT_EQ(progress.best.scores[1].loss,
              evaluations[static_cast<std::size_t>(progress.best.epoch - 1)][1].loss);
  }
  return found;
}

using Epochs = std::vector<std::int64_t>;

TEST(Monitor, AccuracyTakesTheFirstOfTheHighest) {
  auto const found = found_by(models::Monitor::accuracy);

  EXPECT_EQ(found.best, (Epochs{1, 2, 2, 2, 2, 6, 6, 6}));
  EXPECT_EQ(found.without_gain, (Epochs{0, 0, 1, 2, 3, 0, 1, 2}));
}

TEST(Monitor, LossTakesTheFirstOfTheLeast) {
  auto const found = found_by(models::Monitor::loss);

  EXPECT_EQ(found.best, (Epochs{1, 1, 3, 3, 3, 3, 7, 7}));
  EXPECT_EQ(found.without_gain, (Epochs{0, 1, 0, 1, 2, 3, 0, 1}));
}

/// 2: a gain in accuracy alone; 4: the same loss, which counts as a gain; 6: more accurate than all, and not the least loss.
TEST(Monitor, BothTakesTheLastThatNothingBeatsInEither) {
  auto const found = found_by(models::Monitor::both);

  EXPECT_EQ(found.best, (Epochs{1, 1, 3, 3, 3, 3, 7, 7}));
  EXPECT_EQ(found.without_gain, (Epochs{0, 0, 0, 0, 1, 0, 0, 1}));
}

/// Links have an area under the ROC curve in place of an accuracy.
TEST(Monitor, AccuracyOfLinksIsTheirArea) {
  auto first = validated(9, 1.0);
  first[1].ranking.emplace();
  first[1].roc_auc = 0.5;
  auto second = first;
  second[1].num_correct = 1;
  second[1].roc_auc = 0.75;
  models::TrainProgress progress;

  progress.add_evaluation(models::Monitor::accuracy, 1, first);
  progress.add_evaluation(models::Monitor::accuracy, 2, second);

  EXPECT_EQ(progress.best.epoch, 2);
  EXPECT_EQ(progress.records->merit, 0.75);
}

/// R2 grows and is the least of the third evaluation, which has the least error.
TEST(Monitor, AbsoluteErrorTakesTheLeastWhateverR2Is) {
  auto const of_numbers = [](double r2, double mae) {
    auto scores = validated(0, 1.0);
    for (auto& score : scores)
      score.is_of_numbers = true;
    scores[1].r2 = r2;
    scores[1].mae = mae;
    return scores;
  };
  models::TrainProgress progress;
  std::vector<std::int64_t> best;

  for (auto const& scores : {of_numbers(0.1, 2), of_numbers(0.5, 1), of_numbers(0.05, 0.5)}) {
    progress.add_evaluation(models::Monitor::absolute_error, std::ssize(best) + 1, scores);
    best.push_back(progress.best.epoch);
    EXPECT_EQ(progress.num_without_gain, 0);
  }

  EXPECT_EQ(best, (std::vector<std::int64_t>{1, 2, 3}));
}

/// As run_epochs() does with an evaluation off schedule.
TEST(Monitor, WhatIsNotInTheRecordsIsTheBestUntilItIsBeaten) {
  models::TrainProgress progress;
  progress.add_evaluation(models::Monitor::accuracy, 10, validated(3, 2.0));
  auto const records = progress.records;
  progress.add_evaluation(models::Monitor::accuracy, 15, validated(6, 2.0));
  progress.records = records;

  progress.add_evaluation(models::Monitor::accuracy, 20, validated(5, 2.0));
  EXPECT_EQ(progress.best.epoch, 15);
  EXPECT_EQ(progress.num_without_gain, 0);
  progress.add_evaluation(models::Monitor::accuracy, 30, validated(7, 2.0));
  EXPECT_EQ(progress.best.epoch, 30);
}

TEST(Monitor, WordsAreRead) {
  EXPECT_EQ(models::parse_monitor("accuracy"), models::Monitor::accuracy);
  EXPECT_EQ(models::parse_monitor("loss"), models::Monitor::loss);
  EXPECT_EQ(models::parse_monitor("both"), models::Monitor::both);
  EXPECT_EQ(models::parse_monitor("r2"), models::Monitor::accuracy);
  EXPECT_EQ(models::parse_monitor("mae"), models::Monitor::absolute_error);
  EXPECT_NE(test::message_of([] {
              static_cast<void>(models::parse_monitor("val_loss"));
            }).find("--monitor is accuracy, loss, both, r2 or mae, not 'val_loss'"),
            std::string::npos);
}

} // namespace
} // namespace orthant::testing
