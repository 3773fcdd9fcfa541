// SPDX-License-Identifier: Apache-2.0
//
// Scores of links beside their definitions, pair by pair, on random scores with ties and on cases that are worked out by hand.
#include "models/gnn/links/link_loss.hpp"
#include "support/reference.hpp"

#include <gtest/gtest.h>
#include <limits>

namespace orthant::testing {
namespace {

using models::SplitScore;
using Numbers = std::vector<double>;

struct Expected {
  double auc = 0, mrr = 0, loss = 0;
  std::array<double, models::hits_at.size()> hits{};
  std::int64_t num_correct = 0;
};

/// By comparing every positive with every negative (the evaluator of the Open Graph Benchmark; the area as the share of pairs in
/// the right order, ties half).
Expected by_definition(Numbers const& positives, Numbers const& negatives) {
  Expected expected;
  auto const num_positives = static_cast<double>(positives.size());
  auto const num_negatives = static_cast<double>(negatives.size());
  auto descending = negatives;
  std::ranges::sort(descending, std::greater<>());
  for (auto const p : positives) {
    double optimistic = 0, pessimistic = 0;
    for (auto const q : negatives) {
      expected.auc += (p > q ? 1.0 : p == q ? 0.5 : 0.0) / (num_positives * num_negatives);
      optimistic += q > p ? 1 : 0;
      pessimistic += q >= p ? 1 : 0;
    }
    expected.mrr += 1 / (0.5 * (optimistic + pessimistic) + 1) / num_positives;
    for (std::size_t i = 0; i < models::hits_at.size(); ++i) {
      auto const k = static_cast<std::size_t>(models::hits_at[i]);
      if (negatives.size() < k || p > descending[k - 1]) expected.hits[i] += 1 / num_positives;
    }
    expected.loss += binary_loss(p, 1) / (num_positives + num_negatives);
    expected.num_correct += p > 0;
  }
  for (auto const q : negatives) {
    expected.loss += binary_loss(q, 0) / (num_positives + num_negatives);
    expected.num_correct += !(q > 0);
  }
  return expected;
}

class LinkScores : public ::testing::Test {
 protected:
  /// Each rank gives every so many of them.
  [[nodiscard]] SplitScore score(Numbers const& positives, Numbers const& negatives) const {
    auto const mine = [this](Numbers const& all) {
      Numbers share;
      for (auto i = static_cast<std::size_t>(world_.rank()); i < all.size();
           i += static_cast<std::size_t>(world_.size()))
        share.push_back(all[i]);
      return share;
    };
    return models::score_links(world_, mine(positives), mine(negatives));
  }
  void expect_by_definition(Numbers const& positives, Numbers const& negatives) const {
    auto const found = score(positives, negatives);
    auto const expected = by_definition(positives, negatives);
    constexpr auto rounding = 1e-12;
    ASSERT_TRUE(found.ranking && found.roc_auc);
    EXPECT_NEAR(*found.roc_auc, expected.auc, rounding);
    EXPECT_NEAR(found.ranking->mrr, expected.mrr, rounding);
    EXPECT_NEAR(found.loss, expected.loss, rounding);
    EXPECT_EQ(found.num_correct, expected.num_correct);
    EXPECT_EQ(found.num_counted, std::ssize(positives) + std::ssize(negatives));
    for (std::size_t i = 0; i < expected.hits.size(); ++i)
      EXPECT_NEAR(found.ranking->hits[i], expected.hits[i], rounding) << "Hits@" << models::hits_at[i];
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
};

/// `levels` different scores from -3 to 3: few of them make many ties.
Numbers scores_of(std::uint64_t seed, std::int64_t count, std::uint64_t levels) {
  Numbers scores;
  for (std::int64_t i = 0; i < count; ++i)
    scores.push_back(6 * static_cast<double>(mixed(seed, i) % levels) / static_cast<double>(levels) - 3);
  return scores;
}

TEST_F(LinkScores, AreThoseOfTheDefinitionsOnScoresWithTies) {
  for (auto const levels : {2U, 13U, 40U, 1000000U})
    for (auto const& [num_positives, num_negatives] :
         {std::pair(1, 1), std::pair(5, 9), std::pair(10, 10), std::pair(60, 11), std::pair(301, 257)}) {
      SCOPED_TRACE(std::to_string(levels) + " levels, " + std::to_string(num_positives) + " and " +
                   std::to_string(num_negatives));
      expect_by_definition(scores_of(1, num_positives, levels), scores_of(2, num_negatives, levels));
    }
}

// Positives 2, 1, 0 and negatives 1, 0, 0, -1: of 12 pairs 4 + 3 + 1 are in order and 1 + 2 tied. Ranks 1; 1 + (0 + 1) / 2; 1 + (1 + 3)
// / 2. Two of six signs are wrong: that of the positive 0 and that of the negative 1.
TEST_F(LinkScores, AreThoseWorkedOutByHand) {
  auto const found = score({2, 1, 0}, {1, 0, 0, -1});

  EXPECT_DOUBLE_EQ(found.roc_auc.value(), (8 + 1.5) / 12);
  EXPECT_DOUBLE_EQ(found.ranking.value().mrr, (1 + 1 / 1.5 + 1 / 3.0) / 3);
  EXPECT_EQ(found.num_correct, 5);
}

// The tenth largest of 20 negatives 19, .., 0 is 10: 11 is a hit, 10 is none. There are fewer than 50 negatives.
TEST_F(LinkScores, AHitIsAboveTheKthNegativeAndNotEqual) {
  Numbers negatives;
  for (int i = 0; i < 20; ++i)
    negatives.push_back(i);

  auto const hits = score({11, 10}, negatives).ranking.value().hits;

  EXPECT_EQ(hits[0], 0.5);
  EXPECT_EQ(hits[1], 1); // above 0, the 20th
  EXPECT_EQ(hits[2], 1);
}

TEST_F(LinkScores, OfNothingCountNothing) {
  auto const none = score({}, {});
  EXPECT_EQ(none.num_counted, 0);
  EXPECT_FALSE(none.ranking);

  auto const without_negatives = score({1, 2}, {});
  EXPECT_FALSE(without_negatives.roc_auc);
  EXPECT_EQ(without_negatives.ranking.value().mrr, 1);
}

TEST_F(LinkScores, ThatAreNotFiniteShowInTheLoss) {
  auto const nan = std::numeric_limits<double>::quiet_NaN();

  EXPECT_TRUE(std::isnan(score({1, nan}, {0, 1}).loss));
  EXPECT_FALSE(score({1, 2}, {nan}).roc_auc);
}

} // namespace
} // namespace orthant::testing
