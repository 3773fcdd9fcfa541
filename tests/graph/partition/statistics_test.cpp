// SPDX-License-Identifier: Apache-2.0
//
// Which order is chosen by which statistics.
#include "graph/partition/statistics.hpp"

#include <gtest/gtest.h>
#include <vector>

namespace orthant::graph {
namespace {

PermutationStatistics order(PermutationKind kind, double balance, double coverage, double fresh_share) {
  PermutationStatistics result;
  result.kind = kind;
  result.grids.fill({balance, balance, coverage, coverage});
  result.fresh_share = fresh_share;
  return result;
}

TEST(ChooseOrder, TakesWhatCostsLess) {
  auto const twofold = order(PermutationKind::twofold, 1.0, 0.9, 0.9);
  auto const near_cluster = order(PermutationKind::cluster, 1.05, 0.9, 0.3);
  auto const far_cluster = order(PermutationKind::cluster, 1.05, 0.9, 0.89);
  auto const near_pieces = order(PermutationKind::pieces, 1.1, 0.1, 0.3);
  auto const uneven_pieces = order(PermutationKind::pieces, 1.8, 0.1, 0.3);
  auto const far_pieces = order(PermutationKind::pieces, 1.1, 0.9, 0.9);
  auto const chosen = [](std::vector<PermutationStatistics> const& orders) {
    return choose_order(orders, 10'000);
  };
  EXPECT_EQ(chosen({twofold, near_cluster, near_pieces}), PermutationKind::pieces);
  EXPECT_EQ(chosen({twofold, near_cluster}), PermutationKind::cluster);
  EXPECT_EQ(chosen({twofold, near_cluster, uneven_pieces}), PermutationKind::cluster);
  EXPECT_EQ(chosen({twofold, near_cluster, far_pieces}), PermutationKind::cluster);
  EXPECT_EQ(chosen({twofold, far_cluster, far_pieces}), PermutationKind::twofold);
  EXPECT_EQ(chosen({twofold, near_pieces}), PermutationKind::pieces); // too large for METIS
  EXPECT_EQ(chosen({twofold, far_pieces}), PermutationKind::twofold);
}

TEST(GatherCost, GrowsWithWhatIsFarAway) {
  auto const some = order(PermutationKind::twofold, 1.5, 0.9, 0.5);
  EXPECT_DOUBLE_EQ(gather_cost(some, 1'000), 1.5 * 1.2);
  EXPECT_DOUBLE_EQ(gather_cost(some, 1'000'000), 1.5 * 2);
}

} // namespace
} // namespace orthant::graph
