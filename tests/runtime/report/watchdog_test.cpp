// SPDX-License-Identifier: Apache-2.0
//
// What the watchdog says, and that it keeps quiet. Jobs that it ends are in faults.py.

#include "runtime/report/watchdog.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/observe/position.hpp"

#include <array>
#include <chrono>
#include <ctime>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <source_location>
#include <thread>

namespace orthant::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RankState waiting_in(char const* what, std::int64_t sequence, double seconds) {
  Position position;
  position.enter(what, "Y", sequence, 64, std::source_location::current());
  auto state = RankState{true, position.read()};
  state.position.seconds = seconds;
  return state;
}

RankState away(RankState state) {
  state.position.is_waiting = false;
  return state;
}

TEST(HangReport, RangesAreAsShortAsCanBe) {
  EXPECT_EQ(format_ranges(std::vector<int>{}), "");
  EXPECT_EQ(format_ranges(std::vector{3}), "3");
  EXPECT_EQ(format_ranges(std::vector{0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(HangReport, ThoseWhoWaitComeFirstAndEqualRanksTogether) {
  std::vector const states{away(waiting_in("barrier", 1, 9)), waiting_in("all_reduce", 2, 7.5), RankState{},
                           waiting_in("all_reduce", 2, 8)};

  auto const report = describe_hang(states, 7, 1);

  EXPECT_THAT(report, HasSubstr("orthant: error: no progress in a collective for 7 s"));
  EXPECT_THAT(report, HasSubstr("rank 1 of 4 reports"));
  EXPECT_THAT(
      report,
      HasSubstr("ranks 1,3: waiting 8.0 s in all_reduce on axis Y (number 2, 64 bytes) at watchdog_test"));
  EXPECT_THAT(report, HasSubstr("rank 0: not arrived; left barrier on axis Y (number 1, 64 bytes)"));
  EXPECT_THAT(report, HasSubstr("rank 2: not arrived; does not answer"));
  EXPECT_LT(report.find("waiting"), report.find("not arrived"));
  EXPECT_THAT(report, Not(HasSubstr("same operations")));
}

TEST(HangReport, CallsThatDoNotMatchAreNamedAsTheCause) {
  std::vector const states{waiting_in("barrier", 2, 8), waiting_in("all_reduce", 2, 8)};

  EXPECT_THAT(describe_hang(states, 7, 0), HasSubstr("do not call the same operations in the same order"));
}

TEST(HangReport, RankThatCommunicatedNeverIsSaidTo) {
  std::vector<RankState> const states{{true, Position().read()}, waiting_in("barrier", 0, 8)};

  EXPECT_THAT(describe_hang(states, 7, 1), HasSubstr("rank 0: not arrived; has been in no collective yet"));
}

RankState working(double seconds) {
  Position position;
  WorkingScope const scope(position);
  auto state = RankState{true, position.read()};
  state.position.seconds = seconds;
  return state;
}

TEST(HangReport, RankThatWorksIsSaidToAndWhere) {
  std::vector const states{working(9), waiting_in("barrier", 0, 8)};

  EXPECT_THAT(describe_hang(states, 7, 1),
              HasSubstr("rank 0: not arrived; works by itself at watchdog_test.cpp:"));
}

TEST(Hang, IsSilenceOfEveryRankWhileSomeoneWaits) {
  auto const waiting = [](double seconds) { return waiting_in("barrier", 0, seconds); };

  EXPECT_TRUE(is_hang(std::vector{waiting(8), waiting(9)}, 7));
  EXPECT_TRUE(is_hang(std::vector{waiting(8), away(waiting(9))}, 7));
  EXPECT_TRUE(is_hang(std::vector{waiting(8), RankState{}}, 7)) << "it does not answer";
  EXPECT_TRUE(is_hang(std::vector{waiting(8), working(8)}, 7)) << "it uses no processor";
  EXPECT_FALSE(is_hang(std::vector{waiting(8), waiting(6)}, 7)) << "it has just come";
  EXPECT_FALSE(is_hang(std::vector{waiting(8), away(waiting(6))}, 7));
  EXPECT_FALSE(is_hang(std::vector{waiting(8), working(0)}, 7));
  EXPECT_FALSE(is_hang(std::vector{away(waiting(8)), working(8), RankState{}}, 7)) << "nobody waits";
}

TEST(Hang, RanksStandStillIfNoneHasMovedOrBegunToAnswer) {
  Position position;
  auto const early = RankState{true, position.read()};
  position.enter("barrier", "Y", 3, 0, std::source_location::current());
  auto const later = RankState{true, position.read()};
  position.leave();
  position.enter("barrier", "Y", 3, 0, std::source_location::current());
  auto const again = RankState{true, position.read()};

  EXPECT_TRUE(stood_still(std::vector{early, RankState{}}, std::vector{early, RankState{}}));
  EXPECT_FALSE(stood_still(std::vector{early}, std::vector{later}));
  EXPECT_FALSE(stood_still(std::vector{later}, std::vector{again})) << "the same place, but another call";
  EXPECT_FALSE(stood_still(std::vector{RankState{}}, std::vector{early}));
  EXPECT_FALSE(stood_still({}, std::vector{early})) << "nobody was asked before";
}

TEST(Position, CountsTheProcessorTimeOfWorkOutsideCollectives) {
  Position position;
  EXPECT_FALSE(position.read().is_working);
  {
    WorkingScope const outer(position);
    auto const before = position.read();
    {
      WorkingScope const inner(position);
      for (auto const start = std::clock(); std::clock() == start;)
        ;
    }
    auto const after = position.read();
    EXPECT_TRUE(before.is_working && after.is_working);
    EXPECT_EQ(after.work_line, before.work_line) << "the outer scope is back";
    EXPECT_GT(after.processor_seconds, before.processor_seconds);
    EXPECT_EQ(after.num_changes, before.num_changes + 2);

    WaitingScope const waiting(position, "a bare call");
    EXPECT_TRUE(position.read().is_waiting);
    EXPECT_EQ(position.read().processor_seconds, 0);
  }
  EXPECT_FALSE(position.read().is_working);
}

TEST(HangReport, ThousandsOfPlacesAreCutShort) {
  std::vector<RankState> states;
  for (int i = 0; i < 1000; ++i)
    states.push_back(waiting_in("send", i, 8));

  auto const report = describe_hang(states, 7, 0);

  EXPECT_LT(report.size(), 10'000U);
  EXPECT_THAT(report, HasSubstr("and 968 more groups"));
}

TEST(Watchdog, IsQuietWhileCollectivesEndInTime) {
  auto const instruments = std::make_shared<Instruments>();
  Communicator const world(MPI_COMM_WORLD, "world", instruments);
  Watchdog const watchdog(MPI_COMM_WORLD, instruments, 2.5);
  auto const start = std::chrono::steady_clock::now();
  auto const is_over = [&] { return std::chrono::steady_clock::now() - start > std::chrono::seconds(3); };

  int num_calls = 0;
  while (all_reduced(world, is_over() ? 1 : 0, Reduction::max) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ++num_calls;
  }

  EXPECT_GT(num_calls, 0);
}

TEST(Watchdog, TimeoutOfZeroTurnsItOff) {
  auto const instruments = std::make_shared<Instruments>();
  Watchdog watchdog(MPI_COMM_WORLD, instruments, 0.1);
  watchdog.set_timeout(0);
  instruments->position.enter("barrier", "world", 0, 0, std::source_location::current());

  std::this_thread::sleep_for(std::chrono::milliseconds(700));

  EXPECT_EQ(watchdog.timeout_seconds(), 0);
  instruments->position.leave();
}

} // namespace
} // namespace orthant::runtime
