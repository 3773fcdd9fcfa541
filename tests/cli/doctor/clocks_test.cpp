// SPDX-License-Identifier: Apache-2.0
//
// The doctor's check of clocks, on ranks whose clocks are in fact apart: this program has a system clock of its own, which replaces
// that of the C library. Each rank stands for a host.

#include "cli/doctor/checks.hpp"
#include "runtime/comm/communicator.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace {
time_t shift_seconds = 0; // of this rank's clock, which no other thread of the test reads
} // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  auto const status = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME) time->tv_sec += shift_seconds;
  return status;
}

namespace orthant::cli {
namespace {

/// Odd ranks are hours ahead, even ones hours behind, by more than any message takes.
double shift_of(int rank) {
  constexpr double hour = 3600;
  return rank % 2 == 0 ? -hour * rank : hour * rank;
}

TEST(DoctorOfClocks, MeasuresHowFarTheyAreApart) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  for (auto const is_shifted : {false, true}) {
    shift_seconds = is_shifted ? static_cast<time_t>(shift_of(world.rank())) : 0;

    auto const offsets = measure_clocks(world, true);

    if (world.rank() != 0) {
      EXPECT_TRUE(offsets.empty());
      continue;
    }
    auto const check = check_clocks(offsets);
    EXPECT_EQ(offsets.size(), static_cast<std::size_t>(world.size() - 1));
    EXPECT_EQ(check.findings.size(), is_shifted ? offsets.size() : 0);
    if (::testing::Test::HasFailure()) continue; // the others measure again
    constexpr double rounding = 1e-6;            // of seconds since 1970
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      auto const shift = is_shifted ? shift_of(offsets[i].rank) : 0.0;
      EXPECT_EQ(offsets[i].rank, static_cast<int>(i) + 1);
      EXPECT_NEAR(offsets[i].seconds, shift, offsets[i].error_seconds + rounding);
      if (is_shifted) {
        EXPECT_NE(check.findings[i].what.find(shift > 0 ? "ahead of" : "behind"), std::string::npos);
      }
    }
  }
  shift_seconds = 0;
}

TEST(DoctorOfClocks, AsksOnlyTheFirstRankOfEachHost) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  auto const offsets = measure_clocks(world, world.rank() % 2 == 0); // hosts of two ranks
  EXPECT_EQ(offsets.size(), world.rank() == 0 ? static_cast<std::size_t>((world.size() - 1) / 2) : 0);
}

} // namespace
} // namespace orthant::cli
