// SPDX-License-Identifier: Apache-2.0
//
// Collectives as messages: whom each member has heard of in the end, and how much it has sent.
#include "pmm/cost/collective_rounds.hpp"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>
#include <tuple>
#include <vector>

namespace orthant::testing {
namespace {

using pmm::Algorithm;
using pmm::CollectiveRounds;
using pmm::PlannedCall;
using runtime::Operation;

constexpr std::int64_t message_bytes = 3 * 5 * 7 * 64 * 16;

PlannedCall call_of(Operation operation, int num_ranks) {
  return {operation, "x", {num_ranks, 1}, message_bytes, 0};
}

/// Whom each member knows of if a message tells all that its sender knew before the round.
std::vector<std::set<int>> known_after(CollectiveRounds const& rounds, int num_ranks) {
  std::vector<std::set<int>> known;
  for (int i = 0; i < num_ranks; ++i)
    known.push_back({i});
  for (int round = 0; round < rounds.size(); ++round) {
    auto const before = known;
    for (auto const& [from, to, sent] : rounds.messages(round))
      known[static_cast<std::size_t>(to)].insert(before[static_cast<std::size_t>(from)].begin(),
                                                 before[static_cast<std::size_t>(from)].end());
  }
  return known;
}

double most_sent(CollectiveRounds const& rounds, int num_ranks) {
  std::vector<double> sent(static_cast<std::size_t>(num_ranks), 0);
  for (int round = 0; round < rounds.size(); ++round)
    for (auto const& message : rounds.messages(round))
      sent[static_cast<std::size_t>(message.from)] += message.bytes;
  return std::ranges::max(sent);
}

TEST(CollectiveRounds, TellEveryMemberOfEveryOther) {
  for (auto const operation :
       {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter, Operation::all_to_all})
    for (int num_ranks = 2; num_ranks <= 24; ++num_ranks)
      for (int members = 1; members <= num_ranks; ++members)
        for (auto const algorithm : pmm::algorithms_for(operation, num_ranks, members)) {
          CollectiveRounds const rounds(call_of(operation, num_ranks), algorithm, members);
          for (auto const& known : known_after(rounds, num_ranks))
            ASSERT_EQ(known.size(), static_cast<std::size_t>(num_ranks))
                << runtime::name_of(operation) << " " << runtime::name_of(algorithm) << " " << num_ranks
                << " " << members;
        }
}

TEST(CollectiveRounds, SendWhatTheLedgerSays) {
  for (auto const operation :
       {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter, Operation::all_to_all})
    for (int const num_ranks : {2, 3, 4, 6, 8, 16})
      for (auto const algorithm : pmm::algorithms_for(operation, num_ranks, 1)) {
        CollectiveRounds const rounds(call_of(operation, num_ranks), algorithm, 1);
        auto const expected =
            static_cast<double>(runtime::sent_bytes(operation, message_bytes, 0, num_ranks));
        EXPECT_NEAR(most_sent(rounds, num_ranks), expected, 1)
            << runtime::name_of(operation) << " " << runtime::name_of(algorithm) << " " << num_ranks;
      }
}

TEST(CollectiveRounds, AreAsManyAsTheAlgorithmHas) {
  auto const count = [](Operation operation, int num_ranks, Algorithm algorithm, int members) {
    return CollectiveRounds(call_of(operation, num_ranks), algorithm, members).size();
  };
  EXPECT_EQ(count(Operation::all_reduce, 6, Algorithm::ring, 1), 10);
  EXPECT_EQ(count(Operation::all_gather, 6, Algorithm::ring, 1), 5);
  EXPECT_EQ(count(Operation::all_reduce, 8, Algorithm::recursive, 1), 6);
  EXPECT_EQ(count(Operation::all_reduce, 6, Algorithm::recursive, 1), 6);
  EXPECT_EQ(count(Operation::reduce_scatter, 8, Algorithm::recursive, 1), 3);
  EXPECT_EQ(count(Operation::all_reduce, 16, Algorithm::two_level, 4), 3 + 4 + 3);
  EXPECT_EQ(count(Operation::all_to_all, 6, Algorithm::library, 1), 5);
  EXPECT_EQ(count(Operation::broadcast, 6, Algorithm::library, 1), 3);
}

/// From, to, and parts.
using Sent = std::tuple<int, int, std::int64_t>;

// The messages of all rounds, sorted: ranks that send nothing in a round do not have it in their lists.
TEST(CollectiveRounds, HaveTheMessagesThatRanksSend) {
  for (int num_ranks = 2; num_ranks <= 16; ++num_ranks)
    for (int members = 1; members <= num_ranks; ++members)
      for (auto const operation : {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter})
        for (std::size_t i = 1; i < runtime::num_algorithms; ++i) {
          auto const algorithm = static_cast<Algorithm>(i);
          runtime::NodeShape const shape{num_ranks / members, members};
          if (num_ranks % members != 0 || !runtime::is_possible(operation, algorithm, shape)) continue;
          std::vector<Sent> lists, simulated;
          std::size_t longest = 0;
          for (int rank = 0; rank < num_ranks; ++rank) {
            auto const list = rounds_of(operation, algorithm, shape, rank);
            longest = std::max(longest, list.size());
            for (auto const& round : list)
              if (round.to >= 0)
                lists.emplace_back(rank, round.to, static_cast<std::int64_t>(round.sent.size()));
          }
          CollectiveRounds const rounds({operation, "x", {num_ranks, 1}, num_ranks, 0}, algorithm, members);
          for (int round = 0; round < rounds.size(); ++round)
            for (auto const& [from, to, parts] : rounds.messages(round))
              simulated.emplace_back(from, to, std::llround(parts));
          EXPECT_EQ(rounds.size(), static_cast<int>(longest));
          std::ranges::sort(lists);
          std::ranges::sort(simulated);
          EXPECT_EQ(lists, simulated) << runtime::name_of(operation) << " by " << runtime::name_of(algorithm)
                                      << " on " << shape.num_nodes << " x " << shape.per_node;
        }
}

} // namespace
} // namespace orthant::testing
