// SPDX-License-Identifier: Apache-2.0
//
// Collectives through memory that the ranks share: what goes that way, and calls of all kinds and lengths at any pace.
#include "collective_exercises.hpp"
#include "runtime/comm/backend.hpp"
#include "runtime/comm/collectives.hpp"
#include "support/grids.hpp"

#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <random>
#include <thread>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;

detail::Call sum_of(std::vector<float>& numbers) {
  return detail::all_reduce_call(host, numbers, Reduction::sum, Wire::native,
                                 std::source_location::current());
}

TEST(SharedMemory, CarriesBlockingCalls) {
  Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "a group of one asks no backend";
  std::vector<float> few(100), many(1 << 20);
  auto const reads = detail::make_shared_memory_backend(world);
  ASSERT_NE(reads, nullptr) << "the ranks of a test share memory";
  EXPECT_TRUE(reads->takes(sum_of(few), detail::Mode::blocking));
  EXPECT_FALSE(reads->takes(sum_of(few), detail::Mode::asynchronous));
  auto const copies = detail::make_shared_memory_backend(world, false);
  EXPECT_TRUE(copies->takes(sum_of(few), detail::Mode::blocking));
  EXPECT_FALSE(copies->takes(sum_of(many), detail::Mode::blocking)) << "longer than a slot";
}

// Where ranks cannot read each other's memory, as in some containers: long calls, and all of encoded numbers, are MPI's.
TEST(SharedMemory, EqualsSerialWithoutReading) {
  Communicator const world(MPI_COMM_WORLD, "world");
  world.use_backend(detail::make_mpi_backend());
  if (auto copies = detail::make_shared_memory_backend(world, false)) world.use_backend(std::move(copies));
  exercise_all_types<InVector>(world, 5, Mode::blocking, {0, 1, 40, 1500});
  Exercises<float, InVector>(world, 5, Mode::blocking, {16'384, 200'001}).all();
  for (std::size_t const length : {std::size_t{37}, std::size_t{9'000}, std::size_t{70'000}}) {
    std::vector<float> sums(length, 1);
    all_reduce(host, world, sums, Reduction::sum, Wire::bf16);
    EXPECT_EQ(sums, std::vector<float>(length, static_cast<float>(world.size())));
  }
}

// Short and long calls of all kinds, one after the other, by ranks that come late: halves of slots are used again at once.
TEST(SharedMemory, CallsMayFollowEachOtherAtAnyPace) {
  Communicator const world(MPI_COMM_WORLD, "world");
  std::mt19937 same(7);                                            // what to call: equal on all ranks
  std::mt19937 own(static_cast<unsigned>(world.rank()) * 13U + 1); // when
  auto const size = static_cast<std::size_t>(world.size());
  for (int repeat = 0; repeat < 400; ++repeat) {
    if (own() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
    std::array<std::size_t, 4> const lengths{1, 700, 5'000, 40'000};
    auto const length = lengths[same() % lengths.size()];
    auto const rank_number = static_cast<float>(world.rank() + repeat % 5);
    auto const sum = static_cast<float>(world.size() * (world.size() - 1) / 2 + world.size() * (repeat % 5));
    std::vector<float> const mine(length, rank_number);
    std::vector<float> whole(length * size, rank_number);
    switch (same() % 4) {
    case 0: {
      auto sums = mine;
      all_reduce(host, world, sums);
      ASSERT_EQ(sums, std::vector<float>(length, sum)) << repeat;
      break;
    }
    case 1: {
      auto const in = whole;
      std::vector<float> part(length);
      reduce_scatter(host, world, in, part);
      ASSERT_EQ(part, std::vector<float>(length, sum)) << repeat;
      break;
    }
    case 2:
      all_gather(host, world, mine, whole);
      for (std::size_t i = 0; i < whole.size(); ++i)
        ASSERT_EQ(whole[i], static_cast<float>(i / length) + static_cast<float>(repeat % 5)) << repeat;
      break;
    default:
      whole.resize(length);
      broadcast(host, world, whole, static_cast<int>(same() % size));
      ASSERT_EQ(whole.front(), whole.back()) << repeat;
    }
  }
}

} // namespace
} // namespace orthant::testing
