// SPDX-License-Identifier: Apache-2.0
//
// Records on their way into tiles: lists of them in shared memory, and their sort.
#include "graph/chunk_pool.hpp"
#include "graph/partition/tile_builder.hpp"
#include "graph/radix_sort.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <vector>

namespace orthant::graph {
namespace {

TEST(RecordLists, KeepOrderAndReuseMemory) {
  ChunkPool pool;
  RecordLists<std::array<std::uint32_t, 3>> lists(pool, 5);
  for (std::uint32_t i = 0; i < 20'000; ++i)
    lists.append(i % 5, {i, 2 * i, 3 * i});
  auto const reserved = pool.reserved_bytes();
  RecordLists<std::uint32_t> others(pool, 3);
  std::vector<std::array<std::uint32_t, 3>> records;
  for (std::uint32_t list = 0; list < 5; ++list) {
    lists.drain(list, records);
    ASSERT_EQ(records.size(), 4000U);
    for (std::uint32_t i = 0; i < 4000; ++i)
      ASSERT_EQ(records[i][0], 5 * i + list);
    EXPECT_EQ(lists.size(list), 0);
    for (std::uint32_t i = 0; i < 8000; ++i)
      others.append(i % 3, i);
  }
  EXPECT_EQ(pool.reserved_bytes(), reserved);
  std::vector<std::uint32_t> numbers;
  others.read(1, numbers);
  EXPECT_EQ(numbers.size(), 13'335U);
}

TEST(RecordLists, SmallChunksLoseLittle) {
  constexpr std::size_t num_lists = 100'000;
  constexpr std::size_t num_records = 85 * num_lists;
  ChunkPool pool(chunk_bytes_for(num_lists, num_records * 4));
  RecordLists<std::uint32_t> lists(pool, num_lists);
  for (std::uint32_t i = 0; i < num_records; ++i)
    lists.append(i * 2'654'435'761U % num_lists, i);

  EXPECT_LT(pool.reserved_bytes(), std::int64_t{num_records} * 4 * 5 / 4);
  std::int64_t total = 0;
  std::vector<std::uint32_t> records;
  for (std::size_t list = 0; list < num_lists; ++list) {
    lists.drain(list, records);
    total += static_cast<std::int64_t>(records.size());
    ASSERT_TRUE(std::ranges::is_sorted(records));
    for (auto const record : records)
      ASSERT_EQ(record * 2'654'435'761U % num_lists, list);
  }
  EXPECT_EQ(total, std::int64_t{num_records});
}

TEST(RadixSort, SortsStably) {
  struct Record {
    std::uint64_t key;
    int number;
  };
  runtime::RandomStream const random(3, runtime::Purpose::test);
  for (int const size : {0, 1, 100, 5000})
    for (int const bits : {0, 1, 11, 12, 40}) {
      std::vector<Record> records;
      for (int i = 0; i < size; ++i)
        records.push_back(
            {random.bits64(static_cast<std::uint64_t>(i)) & ((std::uint64_t{1} << bits) - 1), i});
      auto expected = records;
      std::stable_sort(expected.begin(), expected.end(),
                       [](Record const& a, Record const& b) { return a.key < b.key; });
      std::vector<Record> scratch;
      radix_sort(records, scratch, bits, [](Record const& record) { return record.key; });
      for (std::size_t i = 0; i < records.size(); ++i)
        ASSERT_EQ(records[i].number, expected[i].number);
    }
}

} // namespace
} // namespace orthant::graph
