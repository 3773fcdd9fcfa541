// SPDX-License-Identifier: Apache-2.0
//
// Pieces of a local order: every vertex has one place, and the cells of grids that nobody names are equally
// heavy and made of few runs.
#include "graph/partition/permutation.hpp"

#include "graph/store/listed_block.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

namespace orthant::graph {
namespace {

using Numbers = std::vector<std::int64_t>;

/// Clusters of these sizes with the weights of their vertices.
struct Clusters {
  Numbers sizes;
  Numbers weights;
};

Clusters clusters_of_one(Numbers weights) {
  return {Numbers(weights.size(), 1), std::move(weights)};
}

Numbers uneven_weights(std::int64_t count) {
  runtime::RandomStream const random(3, runtime::Purpose::test);
  Numbers weights;
  for (std::int64_t v = 0; v < count; ++v) {
    auto const region = std::uint64_t{1}
                        << (v * 8 / count % 5); // neighbours are alike: 1 to 16 times as heavy
    weights.push_back(
        static_cast<std::int64_t>(region * (1 + random.integer(5, static_cast<std::uint64_t>(v)))));
  }
  return weights;
}

TEST(DealPieces, GivesEveryVertexOnePlace) {
  runtime::RandomStream const random(1, runtime::Purpose::test);
  for (std::int64_t const num_clusters : {0, 1, 2, 16, 17, 33, 100, 1000}) {
    Clusters clusters;
    for (std::int64_t k = 0; k < num_clusters; ++k) {
      auto const draw = static_cast<std::uint64_t>(k);
      clusters.sizes.push_back(static_cast<std::int64_t>(random.integer(40, draw))); // some are empty
      clusters.weights.push_back(clusters.sizes.back() *
                                 static_cast<std::int64_t>(random.integer(9, draw + 1000)));
    }

    auto runs = deal_pieces(clusters.sizes, clusters.weights);

    std::ranges::sort(runs, {}, &runtime::Range::begin);
    std::int64_t next = 0;
    for (auto const& run : runs) {
      ASSERT_EQ(run.begin, next) << num_clusters;
      ASSERT_LT(run.begin, run.end);
      next = run.end;
    }
    EXPECT_EQ(next, std::accumulate(clusters.sizes.begin(), clusters.sizes.end(), std::int64_t{0}));
  }
}

TEST(DealPieces, LeavesAnEvenOrderAsItIs) {
  for (std::int64_t const n : {1, 15, 16, 17, 24, 31, 1000, 4099}) {
    auto const clusters = clusters_of_one(Numbers(static_cast<std::size_t>(n), 7));

    auto const runs = deal_pieces(clusters.sizes, clusters.weights);

    EXPECT_EQ(runs, (std::vector<runtime::Range>{{0, n}}));
  }
}

// Cut in 8 regions of different weights, the contiguous cells of the local order would be up to 4 times as
// heavy as their mean. A seam is worth 0.1 % of a half, and there are up to 6 halvings.
TEST(DealPieces, BalancesTheCellsOfEveryGridInFewRuns) {
  std::int64_t const n = 40'000;
  auto const clusters = clusters_of_one(uneven_weights(n));
  auto const whole = std::accumulate(clusters.weights.begin(), clusters.weights.end(), std::int64_t{0});

  ListPlaces const position_of(deal_pieces(clusters.sizes, clusters.weights));

  for (std::int64_t const num_cells : {2, 3, 4, 5, 6, 7, 8, 12, 16, 27, 32, 60, 64, 100}) {
    Numbers weights(static_cast<std::size_t>(num_cells));
    Numbers num_runs(static_cast<std::size_t>(num_cells)); // of the local order
    std::int64_t last_cell = -1;
    for (std::int64_t place = 0; place < n; ++place) {
      auto const cell = runtime::balanced_part(n, num_cells, position_of(place));
      weights[static_cast<std::size_t>(cell)] += clusters.weights[static_cast<std::size_t>(place)];
      if (cell != last_cell) ++num_runs[static_cast<std::size_t>(cell)];
      last_cell = cell;
    }
    auto const heaviest = static_cast<double>(*std::ranges::max_element(weights)) *
                          static_cast<double>(num_cells) / static_cast<double>(whole);
    bool const is_power_of_two = (num_cells & (num_cells - 1)) == 0;
    EXPECT_LE(heaviest, 1.05) << num_cells << " cells";
    if (is_power_of_two) {
      EXPECT_LE(*std::ranges::max_element(num_runs), 16) << num_cells << " cells";
    }
  }
}

// No split helps against one vertex that has all the weight.
TEST(DealPieces, TakesAnyWeights) {
  Numbers weights(500);
  EXPECT_EQ(deal_pieces(Numbers(500, 1), weights).size(), 1U); // none at all
  weights[123] = std::int64_t{1} << 50;
  ListPlaces const position_of(deal_pieces(Numbers(500, 1), weights));
  EXPECT_GE(position_of(123), 0);
  EXPECT_THROW(static_cast<void>(deal_pieces(Numbers(2, 1), weights)), runtime::Error);
}

} // namespace
} // namespace orthant::graph
