// SPDX-License-Identifier: Apache-2.0
#include "sampling/block_sampler.hpp"

#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace orthant::sampling {
namespace {

PackedIds packed(std::vector<std::int64_t> const& ids) {
  auto const largest = ids.empty() ? 0 : *std::max_element(ids.begin(), ids.end());
  PackedIds result(largest + 1, static_cast<std::int64_t>(ids.size()));
  for (std::size_t i = 0; i < ids.size(); ++i)
    result.set(i, ids[i]);
  return result;
}

KeyTable table_of(std::vector<std::int64_t> const& keys) {
  return KeyTable(packed(keys));
}

// Runs, random subsets, multiples of a power of two, and keys of more than 32 bits.
TEST(KeyTable, FindsItsKeysAndNoOthers) {
  std::vector<std::vector<std::int64_t>> lists(6); // the last one stays empty
  runtime::KeyedBijection const permute(100'000, 5);
  for (std::int64_t i = 0; i < 3000; ++i) {
    lists[0].push_back(500 + i);
    lists[1].push_back(static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(i))));
    lists[2].push_back(4096 * (i ^ 1));
    lists[3].push_back((std::int64_t{1} << 40) + 3 * i);
    lists[4].push_back(i < 1500 ? i : 90'000 + i); // two runs: buckets that are full, and empty ones
  }
  for (auto const& keys : lists) {
    auto const table = table_of(keys);
    std::map<std::int64_t, std::int32_t> places;
    for (std::size_t i = 0; i < keys.size(); ++i)
      places[keys[i]] = static_cast<std::int32_t>(i);
    auto const expected = [&](std::int64_t key) { return places.count(key) != 0 ? places[key] : -1; };

    for (auto const key : keys)
      for (auto const asked : {key, key + 1, key - 1, key + (std::int64_t{1} << 32)})
        ASSERT_EQ(table.find(asked), expected(asked)) << asked;
    for (std::int64_t key = 0; key < 5000; ++key)
      ASSERT_EQ(table.find(key), expected(key));

    auto asked = keys;
    asked.insert(asked.begin(), {7, 100'001, 0});
    std::vector<std::uint64_t> hits;
    std::vector<std::uint64_t> scratch;
    table.find_all(asked, hits, scratch);
    ASSERT_TRUE(std::is_sorted(hits.begin(), hits.end()));
    std::map<std::uint64_t, std::int32_t> found;
    for (auto const hit : hits)
      found[hit & 0xffff'ffff] = static_cast<std::int32_t>(hit >> 32);
    for (std::size_t i = 0; i < asked.size(); ++i)
      ASSERT_EQ(found.count(i) != 0 ? found[i] : -1, expected(asked[i])) << asked[i];

    auto next = places.lower_bound(1000);
    table.for_each({1000, 93'000}, [&](std::int64_t key, std::int32_t place) {
      ASSERT_NE(next, places.end());
      EXPECT_EQ(key, next->first);
      EXPECT_EQ(place, next->second);
      ++next;
    });
    EXPECT_EQ(next, places.lower_bound(93'000));
  }
}

TEST(LocalVertices, ComeInTheOrderOfTheirRange) {
  std::vector<std::int64_t> const keys{9, 2, 7, 0, 5};
  LocalVertices vertices(packed(keys), packed({90, 20, 70, 0, 50}));
  vertices.set_other_positions(packed({1, 3, 5, 7, 9}));
  SampledVertices found;

  vertices.find({{}, {5, 1, 9, 0, 3}, {2, 3}, {1, 1, 1, 1}, {}}, found);

  EXPECT_EQ(found.positions, (std::vector<std::int32_t>{0, 3, 4}));
  EXPECT_EQ(found.strata, (std::vector<std::int8_t>{1, 1, 0}));
  EXPECT_EQ(found.original_ids, (std::vector<std::int64_t>{90, 0, 50}));
  EXPECT_EQ(found.other_positions, (std::vector<std::int64_t>{1, 7, 9}));

  vertices.find({{}, {1, 2}, {2}, {1}, {}}, found); // the same lists again, one stratum
  EXPECT_EQ(found.positions, (std::vector<std::int32_t>{1}));
  EXPECT_TRUE(found.strata.empty());

  LocalVertices plain(packed(keys)); // keys are original ids, and nobody asks for the other order
  plain.find({{}, {5, 1, 9}, {3}, {1}, {}}, found);
  EXPECT_EQ(found.positions, (std::vector<std::int32_t>{0, 4}));
  EXPECT_EQ(found.original_ids, (std::vector<std::int64_t>{9, 5}));
  EXPECT_TRUE(found.other_positions.empty());
}

// 10^9 vertices on grids of 1 x 8 x 16 x 16 and 1 x 16 x 32 x 32 ranks: bytes of every array, by hand, for
// the four ranges of a network of three layers. Each vertex took 36.1 bytes: a slot of 16, 8 + 8 for ids and
// positions in the other order, 4 and a bit of the filter.
TEST(LocalVertices, TakeFiveAndAHalfBytesAVertexOnThousandsOfRanks) {
  constexpr std::int64_t n = 1'000'000'000;
  auto const range_bytes = [](std::int64_t num_local) {
    return KeyTable::bytes(n, num_local) + ColumnFilter::bytes(num_local);
  };

  // An eighth: buckets of 2^7, 7,812,500 of them. Filter: 1,953,125 words.
  EXPECT_EQ(KeyTable::bytes(n, 125'000'000), 4 * 7'812'501 + 5 * 125'000'000LL);
  EXPECT_EQ(ColumnFilter::bytes(125'000'000), 12 * 1'953'125);
  // A 16th: buckets of 2^8, 3,906,250 of them.
  EXPECT_EQ(KeyTable::bytes(n, 62'500'000), 4 * 3'906'251 + 5 * 62'500'000LL);
  // A 32nd: still of 2^8, now of 8 keys.
  EXPECT_EQ(KeyTable::bytes(n, 31'250'000), 4 * 3'906'251 + 5 * 31'250'000LL);
  // A 256th: buckets of 2^12, 244,141 of them, and 16 bits a key.
  EXPECT_EQ(KeyTable::bytes(n, 3'906'250), 4 * 244'142 + 6 * 3'906'250LL);

  // On 2,048 ranks 2.0 GB in place of 13.5 GB; on 16,384 ranks 1.0 GB in place of 6.8 GB.
  EXPECT_EQ(2 * range_bytes(125'000'000) + 2 * range_bytes(62'500'000), 2'039'062'528);
  EXPECT_EQ(2 * range_bytes(62'500'000) + 2 * range_bytes(31'250'000), 1'035'156'296);
  // Asked for by residual layers only, and two strata only.
  EXPECT_EQ(PackedIds::bytes(n, 125'000'000), 500'000'000);
  EXPECT_EQ(PackedIds::bytes(std::int64_t{1} << 33, 1000), 8000);
}

// The same arithmetic gives what tables of random keys hold.
TEST(LocalVertices, HoldAsManyBytesAsTheArithmeticSays) {
  constexpr std::int64_t n = 1'000'000;
  runtime::KeyedBijection const permute(n, 5);
  for (std::int64_t const parts : {1, 8, 16, 32, 64, 65, 127, 256, 5000}) {
    std::vector<std::int64_t> ids{0, n - 1};
    for (std::int64_t i = 0; i < n / parts; ++i)
      if (auto const id = static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(i)));
          id != 0 && id != n - 1)
        ids.push_back(id);
    auto const count = static_cast<std::int64_t>(ids.size());
    LocalVertices vertices(packed(ids));

    EXPECT_EQ(vertices.num_bytes(), KeyTable::bytes(n, count)) << parts;
    EXPECT_LE(KeyTable::bytes(n, count), 13 * count / 2 + 100) << parts;
    vertices.set_other_positions(packed(ids));
    EXPECT_EQ(vertices.num_bytes(), KeyTable::bytes(n, count) + PackedIds::bytes(n, count)) << parts;
    auto const table = table_of(ids);
    for (std::int64_t i = 0; i < 1000; ++i) {
      auto const at = static_cast<std::size_t>(i * (count - 1) / 999);
      ASSERT_EQ(table.find(ids[at]), static_cast<std::int32_t>(at));
    }
  }
}

TEST(PackedIds, TakeFourBytesUpToTwoToThe32) {
  auto const limit = std::int64_t{1} << 32;
  for (auto const& [most, bytes] : {std::pair(limit, 8), std::pair(limit + 1, 16)}) {
    PackedIds ids(most, 2);
    ids.set(1, most - 1);
    EXPECT_EQ(ids[0], 0);
    EXPECT_EQ(ids[1], most - 1);
    EXPECT_EQ(ids.num_bytes(), bytes);
    EXPECT_EQ(PackedIds::bytes(most, 2), bytes);
  }
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
  EXPECT_EQ(filter.num_bytes(), 4 * 12);

  std::vector<std::int32_t> all(200); // words that are full
  std::iota(all.begin(), all.end(), 0);
  filter.set(all);
  for (std::int32_t column = 0; column < 200; ++column)
    EXPECT_EQ(filter.number(column), column);
}

} // namespace
} // namespace orthant::sampling
