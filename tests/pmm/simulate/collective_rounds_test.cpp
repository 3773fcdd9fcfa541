// SPDX-License-Identifier: Apache-2.0
//
// Collectives as messages: whom each member has heard of in the end, and how much it has sent.
#include "pmm/simulate/collective_rounds.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
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
                << runtime::name_of(operation) << " " << pmm::name_of(algorithm) << " " << num_ranks << " "
                << members;
        }
}

TEST(CollectiveRounds, SendWhatTheLedgerSays) {
  for (auto const operation :
       {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter, Operation::all_to_all})
    for (int const num_ranks : {2, 3, 4, 6, 8, 16})
      for (auto const algorithm : pmm::algorithms_for(operation, num_ranks, 1)) {
        auto const is_power = (num_ranks & (num_ranks - 1)) == 0;
        if (algorithm == Algorithm::halving && !is_power) continue; // sends whole buffers beside
        CollectiveRounds const rounds(call_of(operation, num_ranks), algorithm, 1);
        auto const expected =
            static_cast<double>(runtime::sent_bytes(operation, message_bytes, 0, num_ranks));
        EXPECT_NEAR(most_sent(rounds, num_ranks), expected, 1)
            << runtime::name_of(operation) << " " << pmm::name_of(algorithm) << " " << num_ranks;
      }
}

TEST(CollectiveRounds, AreAsManyAsTheAlgorithmHas) {
  auto const count = [](Operation operation, int num_ranks, Algorithm algorithm, int members) {
    return CollectiveRounds(call_of(operation, num_ranks), algorithm, members).size();
  };
  EXPECT_EQ(count(Operation::all_reduce, 6, Algorithm::ring, 1), 10);
  EXPECT_EQ(count(Operation::all_gather, 6, Algorithm::ring, 1), 5);
  EXPECT_EQ(count(Operation::all_reduce, 8, Algorithm::halving, 1), 6);
  EXPECT_EQ(count(Operation::all_reduce, 6, Algorithm::halving, 1), 6); // 4, and one before and behind
  EXPECT_EQ(count(Operation::reduce_scatter, 8, Algorithm::halving, 1), 3);
  EXPECT_EQ(count(Operation::all_reduce, 16, Algorithm::two_level, 4), 3 + 4 + 3);
  EXPECT_EQ(count(Operation::all_to_all, 6, Algorithm::pairwise, 1), 5);
  EXPECT_EQ(count(Operation::broadcast, 6, Algorithm::tree, 1), 3);
}

} // namespace
} // namespace orthant::testing
