// SPDX-License-Identifier: Apache-2.0
//
// Orders of the vertices: pure arithmetic, tried exhaustively on small sizes and with ids near 2^33.
#include "graph/partition/permutation.hpp"

#include "graph/exchange.hpp"
#include "graph/partition/placement.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <tuple>
#include <vector>

namespace orthant::graph {
namespace {

using runtime::Communicator;

constexpr std::int64_t huge = (std::int64_t{1} << 33) + 12345;

std::vector<std::int64_t> positions_of(Deal const& deal) {
  std::vector<std::int64_t> positions;
  for (std::int64_t k = 0; k < deal.bins().count; ++k)
    positions.push_back(deal.position_of(k));
  return positions;
}

bool is_permutation_of_range(std::vector<std::int64_t> positions) {
  std::sort(positions.begin(), positions.end());
  for (std::size_t i = 0; i < positions.size(); ++i)
    if (positions[i] != static_cast<std::int64_t>(i)) return false;
  return true;
}

TEST(DegreeClass, AscendsInSmallSteps) {
  EXPECT_EQ(degree_class(0), 0);
  EXPECT_EQ(degree_class(1024), 1024);
  std::int64_t last = 0;
  for (std::int64_t degree = 1; degree < 200'000; ++degree) {
    auto const now = degree_class(degree);
    ASSERT_TRUE(now == last || now == last + 1) << degree;
    last = now;
  }
  EXPECT_LT(degree_class(std::int64_t{1} << 40), num_degree_classes());
  EXPECT_LT(degree_class(std::numeric_limits<std::int64_t>::max()), num_degree_classes());
}

TEST(Deal, IsAPermutation) {
  for (std::int64_t n = 1; n <= 400; ++n)
    for (auto const bins : {std::int64_t{1}, num_bins_for(n), n})
      ASSERT_TRUE(is_permutation_of_range(positions_of(Deal(n, bins, 7, 0)))) << n << " in " << bins;
  for (std::int64_t const n : {3071, 3072, 15'360, 61'440, 65'537, 100'003})
    EXPECT_TRUE(is_permutation_of_range(positions_of(Deal(n, num_bins_for(n), 3, 1)))) << n;
}

TEST(Deal, DrawsAndSeedsDiffer) {
  auto const first = positions_of(Deal(10'000, num_bins_for(10'000), 1, 0));
  EXPECT_NE(first, positions_of(Deal(10'000, num_bins_for(10'000), 1, 1)));
  EXPECT_NE(first, positions_of(Deal(10'000, num_bins_for(10'000), 2, 0)));
  EXPECT_EQ(first, positions_of(Deal(10'000, num_bins_for(10'000), 1, 0)));
}

// The P largest vertices, and the next P, and so on, go one to each P-th of the rows, for P a power of two.
TEST(Deal, SpreadsNeighboursInDegree) {
  std::int64_t const n = 1 << 16;
  Deal const deal(n, num_bins_for(n), 5, 0);
  for (std::int64_t const p : {2, 4, 8, 16}) {
    for (std::int64_t round = 0; round < 50; ++round) {
      std::vector<int> met(static_cast<std::size_t>(p));
      for (auto k = round * p; k < (round + 1) * p; ++k)
        ++met[static_cast<std::size_t>(deal.bin_of(k) * p / deal.bins().num_parts)];
      ASSERT_EQ(met, std::vector<int>(static_cast<std::size_t>(p), 1)) << p << " round " << round;
    }
  }
}

TEST(Deal, HoldsAboveTwoToThe33) {
  Deal const deal(huge, 960, 11, 0);
  std::vector<std::int64_t> seen;
  for (std::int64_t k = 0; k < 1000; ++k)
    for (auto const place : {k, huge / 2 + k, huge - 1 - k}) {
      auto const position = deal.position_of(place);
      ASSERT_GE(position, 0);
      ASSERT_LT(position, huge);
      seen.push_back(position);
    }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
  EXPECT_GT(seen.back(), std::int64_t{1} << 32); // nothing was cut to 32 bits
  EXPECT_NE(seen.back() % 1024, 0);              // nor went through a float
}

// On any number of ranks the same positions as on one.
TEST(Placement, DoesNotDependOnTheRanks) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  Communicator const self(MPI_COMM_SELF, "self");
  runtime::RandomStream const random(9, runtime::Purpose::test);
  for (std::int64_t const n : {1, 2, 50, 4321}) {
    std::vector<std::int64_t> degrees;
    std::vector<std::int32_t> clusters;
    for (std::int64_t v = 0; v < n; ++v) {
      degrees.push_back(static_cast<std::int64_t>(random.integer(5, static_cast<std::uint64_t>(v)) *
                                                  random.integer(900, static_cast<std::uint64_t>(v))));
      clusters.push_back(static_cast<std::int32_t>(v * 7 / n));
    }
    auto const block = runtime::balanced_range(n, comm.size(), comm.rank());
    auto const begin = static_cast<std::size_t>(block.begin);
    auto const size = static_cast<std::size_t>(block.size());
    for (auto const kind : {PermutationKind::natural, PermutationKind::single, PermutationKind::twofold,
                            PermutationKind::cluster, PermutationKind::pieces}) {
      auto const whole = place_vertices(self, n, kind, 4, degrees, clusters);
      auto const mine = place_vertices(comm, n, kind, 4, std::span(degrees).subspan(begin, size),
                                       std::span(clusters).subspan(begin, size));
      for (auto const order : {Order::p1, Order::p2}) {
        EXPECT_TRUE(is_permutation_of_range(whole.of(order))) << n;
        std::vector<std::int64_t> const expected(whole.of(order).begin() + block.begin,
                                                 whole.of(order).begin() + block.end);
        EXPECT_EQ(mine.of(order), expected) << n << ' ' << name_of(kind);
      }
      auto const fetched = fetch_block(comm, n, mine.of(Order::p2), {n / 3, n});
      std::vector<std::int64_t> const tail(whole.of(Order::p2).begin() + n / 3, whole.of(Order::p2).end());
      EXPECT_EQ(fetched, tail);
    }
  }
}

// Counts of every class, and nothing that grows with the ranks: a gather of them from all would be 72 MB on
// every rank of 2,048 and 579 MB of 16,384.
TEST(Placement, SumsCountsWithoutGatheringThem) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  constexpr std::int64_t n = 600;
  constexpr std::int64_t class_bytes = 4417 * 8;
  constexpr std::int64_t cluster_bytes = 20 * 8;
  ASSERT_EQ(8 * num_degree_classes(), class_bytes);
  static_assert(class_bytes * 2048 == 72'368'128 && class_bytes * 16384 == 578'945'024);
  auto const mine = runtime::balanced_range(n, comm.size(), comm.rank());
  std::vector<std::int64_t> degrees;
  std::vector<std::int32_t> clusters;
  for (auto v = mine.begin; v < mine.end; ++v) {
    degrees.push_back(v % 7);
    clusters.push_back(static_cast<std::int32_t>(v % 20));
  }

  for (auto const& [kind, scanned_bytes, reduced_bytes] :
       {std::tuple(PermutationKind::twofold, 2 * class_bytes, 2 * class_bytes),
        std::tuple(PermutationKind::cluster, cluster_bytes, 8 + 2 * cluster_bytes),
        std::tuple(PermutationKind::pieces, cluster_bytes, 8 + 2 * cluster_bytes)}) {
    comm.ledger().clear();

    static_cast<void>(place_vertices(comm, n, kind, 4, degrees, clusters));

    auto const on_many = [&](std::int64_t bytes) { return comm.size() == 1 ? 0 : bytes; };
    EXPECT_EQ(comm.ledger()[runtime::Operation::all_gather].bytes, 0);
    EXPECT_EQ(comm.ledger()[runtime::Operation::exclusive_scan].bytes, on_many(scanned_bytes));
    EXPECT_EQ(comm.ledger().total().bytes, on_many(scanned_bytes + reduced_bytes));
  }
}

// In both orders every cluster is one run of positions, its vertices by id.
TEST(Placement, KeepsClustersWhole) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  Communicator const self(MPI_COMM_SELF, "self");
  std::int64_t const n = 9600;
  std::vector<std::int64_t> const degrees(static_cast<std::size_t>(n), 3);
  std::vector<std::int32_t> clusters;
  for (std::int64_t v = 0; v < n; ++v)
    clusters.push_back(static_cast<std::int32_t>(v % 37));
  auto const placement = place_vertices(self, n, PermutationKind::cluster, 1, degrees, clusters);
  for (auto const order : {Order::p1, Order::p2}) {
    auto const& positions = placement.of(order);
    for (std::int64_t v = 37; v < n; ++v)
      ASSERT_EQ(positions[static_cast<std::size_t>(v)], positions[static_cast<std::size_t>(v - 37)] + 1) << v;
  }
  EXPECT_NE(placement.of(Order::p1), placement.of(Order::p2));
}

// Clusters of equal weight, one each in the boxes of every dyadic grid.
TEST(ClusterCoordinate, FillsTheBoxesOfEveryDyadicGridEvenly) {
  for (auto const seed : {0ULL, 1ULL, 77ULL})
    for (int m = 0; m <= 12; ++m)
      for (int across = 0; across <= m; ++across)
        for (auto const first : {0ULL, 3ULL}) {
          auto const count = std::uint64_t{1} << m;
          std::vector<int> boxes(count);
          auto const top = [](std::uint64_t fraction, int bits) {
            return bits == 0 ? 0 : fraction >> (64 - bits);
          };
          for (auto t = first * count; t < (first + 1) * count; ++t)
            ++boxes[top(cluster_coordinate(t, seed, 0), across) << (m - across) |
                    top(cluster_coordinate(t, seed, 1), m - across)];
          EXPECT_EQ(std::count(boxes.begin(), boxes.end(), 1), static_cast<std::ptrdiff_t>(count))
              << "2^" << m << " clusters, 2^" << across << " rows, seed " << seed;
        }
}

} // namespace
} // namespace orthant::graph
