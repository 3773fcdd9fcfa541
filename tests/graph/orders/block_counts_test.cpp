// SPDX-License-Identifier: Apache-2.0
//
// How a matrix falls on blocks, against the definitions, and against what a random graph must give.
#include "graph/partition/statistics.hpp"

#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>
#include <utility>
#include <vector>

namespace orthant::graph {
namespace {

using runtime::balanced_part;
using runtime::balanced_range;
using runtime::Communicator;

struct Entry {
  std::int64_t row;
  std::int64_t column;
};

std::vector<Entry> random_entries(std::int64_t num_vertices, std::int64_t count) {
  runtime::RandomStream const random(11, runtime::Purpose::test);
  std::vector<Entry> entries;
  auto const n = static_cast<std::uint64_t>(num_vertices);
  for (std::uint64_t k = 0; k < static_cast<std::uint64_t>(count); ++k)
    entries.push_back({static_cast<std::int64_t>(random.integer(n, 2 * k)),
                       static_cast<std::int64_t>(random.integer(n, 2 * k + 1))});
  return entries;
}

/// Every rank adds its share of the entries, in two rounds; p1 is the id and p2 the reversed one.
std::array<GridStatistics, 4> count(Communicator const& comm, std::int64_t num_vertices,
                                    std::vector<Entry> const& entries) {
  BlockCounts counts(comm, num_vertices);
  auto const positions = [&](std::int64_t v) { return BlockCounts::Positions{v, num_vertices - 1 - v}; };
  for (std::size_t k = 0; k < entries.size(); ++k) {
    if (static_cast<int>(k % static_cast<std::size_t>(comm.size())) == comm.rank())
      counts.add(positions(entries[k].row), positions(entries[k].column));
    if (k == entries.size() / 2) counts.deliver();
  }
  counts.deliver();
  return counts.finish();
}

TEST(BlockCounts, FollowTheDefinitions) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  for (std::int64_t const n : {3, 29, 301}) { // of 3 vertices most parts of large grids are empty
    auto const entries = random_entries(n, 4 * n);

    auto const found = count(comm, n, entries);

    for (std::size_t g = 0; g < found.size(); ++g) {
      auto const grid = statistics_grids[g];
      auto const part_of = [&](std::int64_t position) { return balanced_part(n, grid, position); };
      auto const c_of = part_of;
      auto const a_of = [&](std::int64_t v) {
        auto const part = balanced_range(n, grid, c_of(v));
        return balanced_part(part.size(), grid, v - part.begin);
      };
      std::vector<int> pmm3d(static_cast<std::size_t>(grid * grid));
      auto rows = pmm3d;
      std::set<std::pair<std::int64_t, std::int64_t>> gather;
      std::set<std::pair<std::int64_t, std::int64_t>> sum;
      for (auto const& [row, column] : entries) {
        ++pmm3d[static_cast<std::size_t>(part_of(row) * grid + part_of(n - 1 - column))];
        ++rows[static_cast<std::size_t>(c_of(row) * grid + a_of(column))];
        if (c_of(row) != c_of(column)) gather.insert({column, c_of(row)});
        if (a_of(row) != a_of(column)) sum.insert({row, a_of(column)});
      }
      auto const balance = [&](std::vector<int> const& blocks) {
        return static_cast<double>(*std::ranges::max_element(blocks)) * static_cast<double>(blocks.size()) /
               static_cast<double>(entries.size());
      };
      auto const all = static_cast<double>(n * (grid - 1));
      EXPECT_DOUBLE_EQ(found[g].pmm3d_balance, balance(pmm3d));
      EXPECT_DOUBLE_EQ(found[g].rows_balance, balance(rows));
      EXPECT_DOUBLE_EQ(found[g].gather_coverage, static_cast<double>(gather.size()) / all);
      EXPECT_DOUBLE_EQ(found[g].sum_coverage, static_cast<double>(sum.size()) / all);
    }
  }
}

TEST(BlockCounts, OfNothingAreEven) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  for (auto const& grid : count(comm, 10, {})) {
    EXPECT_EQ(grid.pmm3d_balance, 1);
    EXPECT_EQ(grid.rows_balance, 1);
    EXPECT_EQ(grid.gather_coverage, 0);
    EXPECT_EQ(grid.sum_coverage, 0);
  }
}

// A vertex meets none of the N/G vertices of another part with the chance q = exp(-d/G). The N (G - 1) pairs of
// a vertex and a part have entries of their own, and few entries here make many there less likely, so the
// number of pairs that meet has a variance of at most N (G - 1) q (1 - q).
TEST(BlockCounts, CoverageOfARandomGraphIsThatOfTheFormula) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  std::int64_t const n = 4096; // all parts are equal
  for (std::int64_t const degree : {1, 4, 10}) {
    auto const found = count(comm, n, random_entries(n, degree * n));
    for (std::size_t g = 0; g < found.size(); ++g) {
      auto const grid = static_cast<double>(statistics_grids[g]);
      auto const missed = std::exp(-static_cast<double>(degree) / grid);
      auto const sigma = std::sqrt(missed * (1 - missed) / (static_cast<double>(n) * (grid - 1)));
      EXPECT_NEAR(found[g].gather_coverage, 1 - missed, 3 * sigma) << degree << " on " << grid;
      EXPECT_NEAR(found[g].sum_coverage, 1 - missed, 3 * sigma) << degree << " on " << grid;
    }
  }
}

} // namespace
} // namespace orthant::graph
