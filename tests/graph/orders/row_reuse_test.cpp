// SPDX-License-Identifier: Apache-2.0
//
// The fresh share against its definition, on any number of ranks.
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

TEST(RowReuse, LooksAtEverySecondWindowOfManyEntries) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  std::int64_t const n = 100'000;
  auto const rows_per_window = 4096 * n / (30 * n);
  Entries entries; // 3M: 30 a row, in 10 columns of its own in even windows and in 15 in odd ones
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t k = 0; k < 30; ++k)
      entries.emplace_back(row, row * 30 + k % (row / rows_per_window % 2 == 0 ? 10 : 15));
  EXPECT_DOUBLE_EQ(fresh_share(comm, n, entries), 1.0 / 3);
}

TEST(RowReuse, OfNoEntriesIsZero) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  EXPECT_EQ(fresh_share(comm, 5, {}), 0);
}

} // namespace
} // namespace orthant::graph
