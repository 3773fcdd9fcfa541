// SPDX-License-Identifier: Apache-2.0
//
// The fresh share against its definition, on any number of ranks, and the choice of an order by it.
#include "graph/orders/row_reuse.hpp"
#include "graph/partition/statistics.hpp"
#include "runtime/numbers/random.hpp"

#include <gtest/gtest.h>
#include <set>
#include <utility>
#include <vector>

namespace orthant::graph {
namespace {

using runtime::Communicator;

using Entries = std::vector<std::pair<std::int64_t, std::int64_t>>; // row, column

/// Every rank adds its share of the entries, in two rounds.
double fresh_share(Communicator const& comm, std::int64_t num_vertices, Entries const& entries) {
  RowReuse reuse(comm, num_vertices, static_cast<std::int64_t>(entries.size()));
  for (std::size_t k = 0; k < entries.size(); ++k) {
    if (static_cast<int>(k % static_cast<std::size_t>(comm.size())) == comm.rank())
      reuse.add(entries[k].first, entries[k].second);
    if (k == entries.size() / 2) reuse.deliver();
  }
  reuse.deliver();
  return reuse.finish();
}

TEST(RowReuse, FollowsTheDefinition) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  runtime::RandomStream const random(11, runtime::Purpose::test);
  std::int64_t const n = 3000;
  Entries entries; // about 7 windows; columns near the row
  for (std::uint64_t k = 0; k < 27'000; ++k) {
    auto const row = static_cast<std::int64_t>(random.integer(n, 2 * k));
    entries.emplace_back(row, (row + static_cast<std::int64_t>(random.integer(60, 2 * k + 1))) % n);
  }

  auto const rows_per_window = 4096 * n / 27'000;
  std::set<std::pair<std::int64_t, std::int64_t>> distinct;
  for (auto const& [row, column] : entries)
    distinct.emplace(row / rows_per_window, column);
  EXPECT_DOUBLE_EQ(fresh_share(comm, n, entries), static_cast<double>(distinct.size()) / 27'000);
}

TEST(RowReuse, LooksAtSomeWindowsOfManyEntries) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  std::int64_t const n = 100'000;
  Entries entries; // 3M, of which each row has 30 in columns of its own
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t k = 0; k < 30; ++k)
      entries.emplace_back(row, row * 10 + k % 10);
  EXPECT_DOUBLE_EQ(fresh_share(comm, n, entries), 1.0 / 3);
}

TEST(RowReuse, OfNoEntriesIsZero) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  EXPECT_EQ(fresh_share(comm, 5, {}), 0);
}

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
  auto const chosen = [](std::vector<PermutationStatistics> const& orders, bool may_use_rows = true) {
    return choose_order(orders, 10'000, may_use_rows);
  };
  EXPECT_EQ(chosen({twofold, near_cluster, near_pieces}), PermutationKind::pieces);
  EXPECT_EQ(chosen({twofold, near_cluster, near_pieces}, false), PermutationKind::cluster);
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
