// SPDX-License-Identifier: Apache-2.0
//
// Orders, cuts and owners: pure arithmetic, tried exhaustively on small sizes and with ids near 2^33.
#include "graph/partition/permutation.hpp"

#include "graph/exchange.hpp"
#include "graph/export/look_up.hpp"
#include "graph/partition/chunk_pool.hpp"
#include "graph/partition/placement.hpp"
#include "graph/partition/radix_sort.hpp"
#include "graph/partition/tile_builder.hpp"
#include "graph/store/tile_grid.hpp"
#include "graph/store/vertex_owners.hpp"
#include "runtime/numbers/random.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
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

TEST(Cut, PartOfInvertsRange) {
  for (std::int64_t count : {1, 2, 5, 97, 240, 1000})
    for (std::int64_t parts = 1; parts <= std::min<std::int64_t>(count, 250); ++parts) {
      Cut const cut{count, parts};
      EXPECT_EQ(cut.begin(0), 0);
      EXPECT_EQ(cut.begin(parts), count);
      CutIndex const quick(cut);
      for (std::int64_t i = 0; i < count; ++i)
        ASSERT_EQ(quick.part_of(i), cut.part_of(i)) << count << ' ' << parts << ' ' << i;
      for (std::int64_t i = 0; i < count; ++i)
        ASSERT_TRUE(cut.range(cut.part_of(i)).contains(i)) << count << ' ' << parts << ' ' << i;
    }
}

TEST(Cut, HoldsNearTwoToThe33) {
  auto const grid = tile_grid_of_topology(huge, std::int64_t{1} << 40);
  for (std::int64_t i = 0; i < grid.rows.num_parts; ++i)
    ASSERT_LE(grid.rows.size(i), max_tile_side);
  for (std::int64_t const index : {std::int64_t{0}, std::int64_t{1} << 24, std::int64_t{1} << 32, huge - 1}) {
    auto const part = grid.rows.part_of(index);
    auto const local = index - grid.rows.begin(part);
    ASSERT_LT(local, max_tile_side);
    auto const entry = unpack(pack({static_cast<std::uint32_t>(local), 0xffff}));
    EXPECT_EQ(grid.rows.begin(part) + entry.row, index);
    EXPECT_EQ(entry.column, 0xffffU);
  }
}

// A block of a balanced cut begins at its tile's corner or less than P rows later, where P divides T.
TEST(Cut, BalancedBlocksBeginAtTiles) {
  Cut const cut{70839, 240};
  for (std::int64_t const p : {1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16})
    for (std::int64_t j = 0; j < p; ++j) {
      auto const begin = runtime::balanced_range(cut.count, p, j).begin;
      EXPECT_GE(begin, cut.begin(j * 240 / p));
      EXPECT_LT(begin - cut.begin(j * 240 / p), p);
    }
}

TEST(TileGrid, LeavesSixteenEntriesToATile) {
  EXPECT_EQ(tile_grid_of_topology(1'000'000, 2'000'000).rows.num_parts, 240);
  EXPECT_EQ(tile_grid_of_topology(2708, 10556).rows.num_parts, 24);
  EXPECT_EQ(tile_grid_of_topology(1, 0).num_tiles(), 1);
  EXPECT_EQ(tile_grid_of_topology(34, 156).rows.num_parts, 1);
  for (std::int64_t const entries : {0, 100, 10'000, 1'000'000}) {
    auto const grid = tile_grid_of_topology(5000, entries);
    EXPECT_TRUE(grid.num_tiles() == 1 || entries / grid.num_tiles() >= 16);
  }
}

// 10^9 vertices, 10^10 edges both ways, on many ranks: arithmetic, no data.
TEST(TileGrid, TablesAndListsStaySmallBesideTheEntries) {
  constexpr std::int64_t num_vertices = 1'000'000'000;
  constexpr std::int64_t num_entries = 20'000'000'000;
  auto const grid = tile_grid_of_topology(num_vertices, num_entries);

  EXPECT_LT(table_bytes(grid), num_entries * 4 / 40);
  auto const chunk = chunk_bytes_for(grid.num_tiles(), num_entries * 4);
  EXPECT_EQ(chunk, 64U);
  for (int const num_ranks : {1, 2048, 16'384}) {
    auto const share = (grid.rows.num_parts + num_ranks - 1) / num_ranks;
    auto const payload = num_entries * 4 / grid.rows.num_parts * share;
    EXPECT_LT(tile_list_bytes(grid, num_entries, 4, chunk, num_ranks), payload * 5 / 4) << num_ranks;
    EXPECT_GT(tile_list_bytes(grid, num_entries, 4, 1024, num_ranks), payload * 2) << num_ranks;
  }
  // Graphs of usual size keep large chunks.
  EXPECT_EQ(chunk_bytes_for(tile_grid_of_topology(10'000'000, 100'000'000).num_tiles(), 400'000'000), 1024U);
  auto const papers = tile_grid_of_topology(111'000'000, 3'200'000'000);
  EXPECT_EQ(chunk_bytes_for(papers.num_tiles(), 12'800'000'000), 512U);
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

TEST(Owners, InvertEachOther) {
  for (std::int64_t const n : {std::int64_t{1}, std::int64_t{7}, std::int64_t{1000}, huge})
    for (int const ranks : {1, 2, 3, 5, 64}) {
      EdgeOwners const owners(static_cast<std::uint64_t>(n), ranks);
      PositionOwners const positions{n, ranks};
      for (std::int64_t k = 0; k < std::min<std::int64_t>(n, 2000); ++k) {
        auto const v = n - 1 - k; // the highest ones
        auto const home = owners.home_of(static_cast<std::uint64_t>(v));
        ASSERT_EQ(owners.vertex_at(home.rank, home.local), static_cast<std::uint64_t>(v));
        ASSERT_LT(home.local, owners.num_local());
        ASSERT_TRUE(runtime::balanced_range(n, ranks, block_owner(n, ranks, v)).contains(v));
        ASSERT_TRUE(positions.range(positions.owner(v)).contains(v));
      }
      EXPECT_EQ(positions.range(0).begin, 0);
      EXPECT_EQ(positions.range(ranks - 1).end, n);
    }
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

TEST(Exchange, DeliversEverythingInBoundedRounds) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  std::int64_t sent = 0;
  std::int64_t received = 0;
  std::int64_t largest = 0;
  Outbox<std::int64_t> outbox(comm.size(), 100);
  std::int64_t const mine = 1000 + 777 * comm.rank(); // ranks end at different rounds
  exchange(
      comm, outbox,
      [&](Outbox<std::int64_t>& box) {
        for (; sent < mine && !box.is_full(); ++sent)
          box.push(static_cast<int>(sent % comm.size()), sent);
        return sent < mine;
      },
      [&](std::span<std::int64_t const> arrived) {
        largest = std::max(largest, static_cast<std::int64_t>(arrived.size()));
        for (auto const value : arrived) {
          EXPECT_EQ(value % comm.size(), comm.rank());
          ++received;
        }
      });
  EXPECT_EQ(runtime::all_reduced(comm, received), runtime::all_reduced(comm, mine));
  EXPECT_LE(largest, 100 * comm.size());
}

TEST(Exchange, MakesAProducersErrorEverybodys) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  auto const run = [&] {
    exchange<std::int64_t>(
        comm,
        [&](Outbox<std::int64_t>&) -> bool {
          if (comm.rank() == comm.size() - 1) runtime::throw_user("line {} is bad", 17);
          return true;
        },
        [](std::span<std::int64_t const>) {});
  };
  try {
    run();
    ADD_FAILURE() << "no error";
  } catch (runtime::UserError const& error) {
    EXPECT_NE(std::string(error.what()).find("line 17 is bad"), std::string::npos);
  }
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
                            PermutationKind::cluster}) {
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

// In both orders every cluster is one run of positions, its vertices by id.
// Every rank asks for positions of all, some of them twice; some ranks for none.
TEST(LookUp, FindsWhatAnyRankHolds) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  for (std::int64_t const n : {1, 900, 1025, 60'000}) {
    PositionOwners const owners{n, comm.size()};
    auto const held = owners.range(comm.rank());
    auto const value_of = [](std::int64_t position) { return 7 * position + 3; };
    std::vector<std::int64_t> mine;
    for (auto position = held.begin; position < held.end; ++position)
      mine.push_back(value_of(position));
    std::vector<std::int64_t> wanted;
    auto const num_wanted = n < 60'000 ? 1000 : 300'000; // more than a round takes
    for (std::int64_t i = 0; comm.rank() != 1 && i < num_wanted; ++i)
      wanted.push_back((i * 7919 + comm.rank()) % n);

    auto const found = look_up(comm, owners, mine, wanted);

    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i], value_of(wanted[i]));
  }
}

// 10^9 vertices: a rank held 8 GB of ids to export a store. Now its share, and what a round brings.
TEST(LookUp, HoldsAShareOnThousandsOfRanks) {
  constexpr std::int64_t n = 1'000'000'000; // 976,563 chunks of 1,024
  auto const most_held = [](int num_ranks) {
    std::int64_t most = 0;
    for (int rank = 0; rank < num_ranks; ++rank)
      most = std::max(most, PositionOwners{n, num_ranks}.range(rank).size());
    return 8 * most;
  };

  EXPECT_EQ(most_held(1), 8 * n);
  EXPECT_EQ(most_held(2048), 8 * 477 * 1024);
  EXPECT_EQ(most_held(16384), 8 * 60 * 1024);
  EXPECT_EQ(records_per_round(2048), 4096);
  EXPECT_EQ(records_per_round(16384), 512);
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
        std::tuple(PermutationKind::cluster, cluster_bytes, 8 + 2 * cluster_bytes)}) {
    comm.ledger().clear();

    static_cast<void>(place_vertices(comm, n, kind, 4, degrees, clusters));

    auto const on_many = [&](std::int64_t bytes) { return comm.size() == 1 ? 0 : bytes; };
    EXPECT_EQ(comm.ledger()[runtime::Operation::all_gather].bytes, 0);
    EXPECT_EQ(comm.ledger()[runtime::Operation::exclusive_scan].bytes, on_many(scanned_bytes));
    EXPECT_EQ(comm.ledger().total().bytes, on_many(scanned_bytes + reduced_bytes));
  }
}

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
