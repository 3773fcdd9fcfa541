// SPDX-License-Identifier: Apache-2.0
//
// Blocks over lists of ranges against the same rows and columns of the whole matrix.
#include "graph/store/listed_block.hpp"

#include "graph/read/open_graph.hpp"
#include "store_fixture.hpp"

#include <map>
#include <utility>

namespace orthant::graph {
namespace {

using Values = std::map<std::pair<std::int64_t, std::int64_t>, float>;

/// Of the whole matrix, by positions of order p1 on both sides.
Values whole_matrix(GraphStore const& store, SelfLoops self_loops) {
  auto const n = store.facts().num_vertices;
  auto const block = store.read_block(Parity::even, {0, n}, {0, n}, self_loops);
  std::vector<std::int64_t> positions;
  if (store.facts().has_two_orders()) positions = store.read_other_positions(Order::p2, {0, n});
  Values values;
  for (std::int64_t row = 0; row < n; ++row)
    for (auto k = block.row_offsets[static_cast<std::size_t>(row)];
         k < block.row_offsets[static_cast<std::size_t>(row) + 1]; ++k) {
      auto const place = static_cast<std::size_t>(k);
      auto const column = block.columns[place];
      values[{row, positions.empty() ? column : positions[static_cast<std::size_t>(column)]}] =
          block.values.empty() ? 1.0F : block.values[place];
    }
  return values;
}

std::vector<std::int64_t> members_of(Ranges const& ranges) {
  std::vector<std::int64_t> members;
  for (auto const& range : ranges)
    for (auto i = range.begin; i < range.end; ++i)
      members.push_back(i);
  return members;
}

void expect_listed(GraphStore const& store, Ranges const& rows, Ranges const& columns, SelfLoops self_loops) {
  auto const whole = whole_matrix(store, self_loops);
  auto const block = read_listed_block(store, rows, columns, self_loops);
  auto const row_members = members_of(rows), column_members = members_of(columns);
  ASSERT_EQ(block.row_offsets.size(), row_members.size() + 1);
  EXPECT_EQ(block.columns_range.size(), std::ssize(column_members));
  EXPECT_EQ(block.values.size(), store.facts().is_weighted ? block.columns.size() : 0U);
  std::size_t next = 0;
  for (std::size_t r = 0; r < row_members.size(); ++r) {
    EXPECT_EQ(block.row_offsets[r], static_cast<std::int64_t>(next));
    for (std::size_t c = 0; c < column_members.size(); ++c) { // ascending within a row
      auto const found = whole.find({row_members[r], column_members[c]});
      if (found == whole.end()) continue;
      ASSERT_LT(next, block.columns.size());
      EXPECT_EQ(block.columns[next], static_cast<std::int32_t>(c));
      if (!block.values.empty()) {
        EXPECT_EQ(block.values[next], found->second);
      }
      ++next;
    }
  }
  EXPECT_EQ(next, block.columns.size());
  EXPECT_EQ(block.row_offsets.back(), static_cast<std::int64_t>(next));
}

TEST_F(StoreTest, ListedBlocksAreTheRowsAndColumnsOfTheLists) {
  auto const weighted = scratch.write(
      "weighted.txt", "0 1 0.5\n1 0 0.25\n2 1 3\n2 2 7\n4 3 1\n0 1 2.5\n3 0 1e-3\n5 7 2\n6 0 4\n");
  auto const path = scratch.path() / "listed.h5";
  for (auto const is_weighted : {false, true})
    for (auto const kind : {PermutationKind::natural, PermutationKind::single, PermutationKind::twofold}) {
      PartitionOptions options;
      options.permutation = kind;
      options.replaces_output = true;
      if (is_weighted)
        partition(comm, *open_graph(comm, {.path = weighted}), path, options);
      else
        partition(comm, *open_dataset(comm, "karate"), path, options);
      auto const store = GraphStore::open(comm, path);
      auto const n = store.facts().num_vertices;
      for (auto const self_loops : {SelfLoops::as_given, SelfLoops::added, SelfLoops::dropped}) {
        SCOPED_TRACE(::testing::Message() << n << " vertices, permutation " << static_cast<int>(kind)
                                          << ", self loops " << static_cast<int>(self_loops));
        expect_listed(store, {{0, n}}, {{0, n}}, self_loops);
        expect_listed(store, {{n - 3, n}, {2, 2}, {0, n / 2}}, {{n / 2, n - 1}, {0, 2}, {n - 1, n}, {2, 3}},
                      self_loops);
        expect_listed(store, {{4, 5}}, {{1, 2}}, self_loops);
        expect_listed(store, {{3, 3}}, {{0, n}}, self_loops);
        expect_listed(store, {}, {{0, n}}, self_loops);
        expect_listed(store, {{0, n}}, {}, self_loops);
      }
    }
}

} // namespace
} // namespace orthant::graph
