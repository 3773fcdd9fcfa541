// SPDX-License-Identifier: Apache-2.0
#include "tokens/token_file.hpp"

#include "support/user_messages.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <set>
#include <vector>

namespace orthant::testing {
namespace {

/// Where the sequences of one epoch begin.
std::vector<std::int64_t> starts_of(tokens::TrainingWindows const& windows, std::int64_t epoch) {
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < windows.size(); ++i)
    starts.push_back(windows.begin_of(epoch * windows.size() + i));
  return starts;
}

TEST(TrainingWindows, AnEpochTakesEachOnce) {
  for (std::int64_t const num_tokens : {5, 70, 1001}) {
    tokens::TrainingWindows const windows(num_tokens, 4, 3);
    ASSERT_EQ(windows.size(), num_tokens - 4);
    std::vector<std::int64_t> all(static_cast<std::size_t>(windows.size()));
    std::iota(all.begin(), all.end(), 0);

    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      auto starts = starts_of(windows, epoch);
      std::ranges::sort(starts);
      EXPECT_EQ(starts, all) << "epoch " << epoch;
    }
  }
}

TEST(TrainingWindows, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  tokens::TrainingWindows const one(1004, 4, 3);
  tokens::TrainingWindows const other(1004, 4, 4);

  std::set const orders{starts_of(one, 0), starts_of(one, 1), starts_of(other, 0)};

  EXPECT_EQ(orders.size(), 3U);
  EXPECT_EQ(starts_of(one, 1), starts_of(tokens::TrainingWindows(1004, 4, 3), 1));
}

/// 24 of 1,000 neighbours stay neighbours at most: the mean of a random order is 2.
TEST(TrainingWindows, NeighboursDoNotStayTogether) {
  auto const starts = starts_of(tokens::TrainingWindows(1008, 8, 1), 0);
  int num_neighbours = 0;
  for (std::size_t i = 1; i < starts.size(); ++i)
    num_neighbours += std::abs(starts[i] - starts[i - 1]) == 1 ? 1 : 0;

  EXPECT_LE(num_neighbours, 24);
}

TEST(TrainingWindows, NeedsATokenBehindTheSequence) {
  EXPECT_EQ(tokens::TrainingWindows(65, 64, 0).size(), 1);
  EXPECT_EQ(test::message_of([] { tokens::TrainingWindows(64, 64, 0); }),
            "--sequence 64 needs 65 training tokens, and the token file has 64: give a shorter one");
}

TEST(ValidationWindows, PredictEachTokenButTheFirst) {
  EXPECT_EQ(tokens::num_validation_windows(0, 4), 0);
  EXPECT_EQ(tokens::num_validation_windows(1, 4), 0);
  EXPECT_EQ(tokens::num_validation_windows(2, 4), 1);
  EXPECT_EQ(tokens::num_validation_windows(5, 4), 1);
  EXPECT_EQ(tokens::num_validation_windows(6, 4), 2);
}

} // namespace
} // namespace orthant::testing
