// SPDX-License-Identifier: Apache-2.0
#include "sampling/local_vertices.hpp"

#include "runtime/bijection.hpp"
#include "sampling/column_filter.hpp"

#include <gtest/gtest.h>
#include <map>
#include <vector>

namespace orthant::sampling {
namespace {

// Runs, random subsets, multiples of a power of two, and keys of more than 32 bits.
TEST(KeyTable, FindsItsKeysAndNoOthers) {
  std::vector<std::vector<std::int64_t>> lists(5);
  runtime::KeyedBijection const permute(100'000, 5);
  for (std::int64_t i = 0; i < 3000; ++i) {
    lists[0].push_back(500 + i);
    lists[1].push_back(static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(i))));
    lists[2].push_back(4096 * (i ^ 1));
    lists[3].push_back((std::int64_t{1} << 40) + 3 * i);
  }
  for (auto const& keys : lists) {
    KeyTable const table(keys);
    std::map<std::int64_t, std::int32_t> places;
    for (std::size_t i = 0; i < keys.size(); ++i)
      places[keys[i]] = static_cast<std::int32_t>(i);
    auto const expected = [&](std::int64_t key) { return places.count(key) != 0 ? places[key] : -1; };

    for (auto const key : keys)
      for (auto const asked : {key, key + 1, key + (std::int64_t{1} << 32)})
        ASSERT_EQ(table.find(asked), expected(asked)) << asked;
    for (std::int64_t key = 0; key < 5000; ++key)
      ASSERT_EQ(table.find(key), expected(key));
  }
}

TEST(LocalVertices, ComeInTheOrderOfTheirRange) {
  std::vector<std::int64_t> const keys{9, 2, 7, 0, 5};
  LocalVertices vertices(keys, {90, 20, 70, 0, 50}, {1, 3, 5, 7, 9});
  SampledVertices found;

  vertices.find({{5, 1, 9, 0, 3}, {2, 3}, {1, 1, 1, 1}}, found);

  EXPECT_EQ(found.positions, (std::vector<std::int32_t>{0, 3, 4}));
  EXPECT_EQ(found.strata, (std::vector<std::int8_t>{1, 1, 0}));
  EXPECT_EQ(found.original_ids, (std::vector<std::int64_t>{90, 0, 50}));
  EXPECT_EQ(found.other_positions, (std::vector<std::int64_t>{1, 7, 9}));

  vertices.find({{1, 2}, {2}, {1}}, found); // the same lists again, one stratum
  EXPECT_EQ(found.positions, (std::vector<std::int32_t>{1}));
  EXPECT_TRUE(found.strata.empty());
}

TEST(ColumnFilter, ForgetsTheBatchBefore) {
  ColumnFilter filter(200);
  filter.set(std::vector<std::int32_t>{3, 63, 64, 199});
  filter.set(std::vector<std::int32_t>{0, 64, 130});

  for (std::int32_t column = 0; column < 200; ++column)
    EXPECT_EQ(filter.passes(column), column == 0 || column == 64 || column == 130 ? 1U : 0U) << column;
  EXPECT_EQ(filter.number(0), 0);
  EXPECT_EQ(filter.number(64), 1);
  EXPECT_EQ(filter.number(130), 2);
}

} // namespace
} // namespace orthant::sampling
