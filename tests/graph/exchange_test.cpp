// SPDX-License-Identifier: Apache-2.0
//
// Which rank owns what, and records sent to their owners in bounded rounds.
#include "graph/exchange.hpp"

#include "graph/store/distribution.hpp"
#include "graph/store/export.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/error.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {
namespace {

using runtime::Communicator;

constexpr std::int64_t many_vertices = (std::int64_t{1} << 33) + 12345;

TEST(Owners, InvertEachOther) {
  for (std::int64_t const n : {std::int64_t{1}, std::int64_t{7}, std::int64_t{1000}, many_vertices})
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

} // namespace
} // namespace orthant::graph
