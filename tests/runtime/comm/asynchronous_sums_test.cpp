// SPDX-License-Identifier: Apache-2.0
//
// Sums of encoded numbers under way: they start without the other ranks, end in whatever order each rank waits,
// leave time for other work and other groups, and equal the blocking ones to the bit.
#include "runtime/comm/collectives.hpp"
#include "support/axis_groups.hpp"
#include "support/grids.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <stdexcept>
#include <vector>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace orthant::testing {
namespace {

using namespace orthant::runtime;
using Floats = std::vector<float>;

constexpr std::array both_wires{Wire::bf16, Wire::fp16};

/// Numbers of many magnitudes, so that every order of additions has another result.
Floats numbers_of(int rank, std::size_t count) {
  std::mt19937 generator(static_cast<unsigned>(7 + rank));
  Floats numbers(count);
  for (auto& number : numbers)
    number =
        std::ldexp(static_cast<float>(generator() >> 8) - 0x1p23F, -20 - static_cast<int>(generator() % 16));
  return numbers;
}

std::vector<std::uint32_t> bits_of(Floats const& values) {
  std::vector<std::uint32_t> bits;
  for (auto const value : values)
    bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

/// Sums that are open at the same time, of small integers: exact in both formats.
struct OpenSums {
  OpenSums(Communicator const& group, int number, std::size_t count)
      : comm(group),
        size(static_cast<std::size_t>(group.size())),
        addend(static_cast<float>(number + group.rank())),
        sum(static_cast<float>(number) * static_cast<float>(size) +
            static_cast<float>(group.size() * (group.size() - 1) / 2)),
        bf16(count, addend),
        fp16(count, addend),
        native(count, addend),
        addends(count * size, addend),
        scattered(count) {}

  void start(std::vector<Request>& requests) {
    requests.push_back(start_all_reduce(host, comm, bf16, Reduction::sum, Wire::bf16));
    requests.push_back(start_all_reduce(host, comm, native));
    requests.push_back(start_reduce_scatter(host, comm, addends, scattered, Reduction::sum, Wire::bf16));
    requests.push_back(start_all_reduce(host, comm, fp16, Reduction::sum, Wire::fp16));
  }
  void expect_complete() const {
    for (auto const* result : {&bf16, &fp16, &native, &scattered})
      EXPECT_EQ(*result, Floats(result->size(), sum)) << "on " << comm.axis();
  }

  Communicator const& comm;
  std::size_t size;
  float addend;
  float sum;
  Floats bf16, fp16, native, addends, scattered;
};

TEST(AsynchronousSums, MayBeWaitedForInAnyOrder) {
  Communicator const world(MPI_COMM_WORLD, "world");
  for (auto const limit : {std::int64_t{7}, std::int64_t{1000}}) {
    world.set_chunk_limit(limit);
    auto const part = world.split(0, world.rank(), "part");
    for (std::size_t order = 0; order < 3; ++order) {
      OpenSums first(world, 3, 50);
      OpenSums second(part, 8, 1);
      OpenSums third(world, 1, 9);
      std::vector<Request> requests;
      for (auto* sums : {&first, &second, &third})
        sums->start(requests);
      auto const count = requests.size();

      for (std::size_t i = 0; i < count; ++i) {
        auto const turned = (i + static_cast<std::size_t>(world.rank()) * 5) % count; // another on every rank
        requests[order == 0 ? i : order == 1 ? count - 1 - i : turned].wait();
      }

      for (auto const* sums : {&first, &second, &third})
        sums->expect_complete();
    }
  }
}

TEST(AsynchronousSums, OfTheAxesOfAGridMayBeOpenAtOnce) {
  Communicator const world(MPI_COMM_WORLD, "world");
  for (auto const& shape : grids_4d(world.size())) {
    auto const groups = axis_groups(world, shape);
    std::vector<OpenSums> sums;
    for (std::size_t axis = 0; axis < groups.size(); ++axis)
      sums.emplace_back(groups[axis].comm, static_cast<int>(axis) + 1, 20);
    std::vector<Request> requests;
    for (auto& set : sums)
      set.start(requests);

    if (world.rank() % 2 == 0)
      for (auto request = requests.rbegin(); request != requests.rend(); ++request)
        request->wait();
    else
      for (auto& request : requests)
        request.wait();

    for (auto const& set : sums)
      set.expect_complete();
  }
}

/// Other groups communicate and this rank computes, while two sums are under way.
TEST(AsynchronousSums, LeaveTimeForOtherGroupsAndForWork) {
  Communicator const world(MPI_COMM_WORLD, "world");
  Communicator const other(MPI_COMM_WORLD, "other");
  for (auto const is_first_waited_first : {true, false}) {
    auto mine = numbers_of(world.rank(), 1000);
    auto expected = mine;
    auto second = numbers_of(world.rank() + 100, 77);
    auto expected_second = second;
    all_reduce(host, world, expected, Reduction::sum, Wire::bf16);
    all_reduce(host, world, expected_second, Reduction::sum, Wire::fp16);

    auto first_request = start_all_reduce(host, world, mine, Reduction::sum, Wire::bf16);
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(other.size()));
    all_gather(host, other, std::vector<std::int32_t>{other.rank()}, ranks);
    auto second_request = start_all_reduce(host, world, second, Reduction::sum, Wire::fp16);
    Floats on_other(31, 2.0F);
    all_reduce(host, other, on_other, Reduction::sum, Wire::bf16);
    double work = 0;
    for (int i = 1; i <= 100'000; ++i)
      work += 1.0 / i;
    barrier(host, other);
    if (is_first_waited_first) first_request.wait();
    second_request.wait();
    first_request.wait();

    EXPECT_EQ(bits_of(mine), bits_of(expected));
    EXPECT_EQ(bits_of(second), bits_of(expected_second));
    EXPECT_EQ(on_other, Floats(31, 2.0F * static_cast<float>(other.size())));
    for (std::size_t r = 0; r < ranks.size(); ++r)
      EXPECT_EQ(ranks[r], static_cast<std::int32_t>(r));
    EXPECT_NEAR(work, 12.09, 0.01);
  }
}

TEST(AsynchronousSums, EqualTheBlockingOnesToTheBit) {
  Communicator const world(MPI_COMM_WORLD, "world");
  for (auto const limit : {std::int64_t{7}, std::int64_t{1} << 30}) {
    world.set_chunk_limit(limit);
    for (auto const wire : both_wires)
      for (std::size_t const count : {0U, 1U, 3U, 64U, 1001U}) {
        auto const mine = numbers_of(world.rank(), count);
        std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()), 0);
        counts.front() = static_cast<std::int64_t>(count / 3);
        counts.back() += static_cast<std::int64_t>(count - count / 3);
        auto const own = static_cast<std::size_t>(counts[static_cast<std::size_t>(world.rank())]);
        auto blocking = mine;
        auto started = mine;
        Floats blocking_part(own);
        Floats started_part(own);

        all_reduce(host, world, blocking, Reduction::sum, wire);
        reduce_scatterv(host, world, mine, blocking_part, counts, Reduction::sum, wire);
        auto sum = start_all_reduce(host, world, started, Reduction::sum, wire);
        auto part = start_reduce_scatterv(host, world, mine, started_part, counts, Reduction::sum, wire);
        part.wait();
        sum.wait();

        EXPECT_EQ(bits_of(started), bits_of(blocking)) << count;
        EXPECT_EQ(bits_of(started_part), bits_of(blocking_part)) << count;
      }
  }
}

TEST(AsynchronousSums, AreCountedAsTheBlockingOnes) {
  Communicator const blocking(MPI_COMM_WORLD, "blocking");
  Communicator const started(MPI_COMM_WORLD, "started");
  Floats data(45, 1.0F);
  Floats const addends(3 * static_cast<std::size_t>(blocking.size()), 1.0F);
  Floats part(3);

  all_reduce(host, blocking, data, Reduction::sum, Wire::bf16);
  reduce_scatter(host, blocking, addends, part, Reduction::sum, Wire::fp16);
  start_all_reduce(host, started, data, Reduction::sum, Wire::bf16).wait();
  start_reduce_scatter(host, started, addends, part, Reduction::sum, Wire::fp16).wait();

  for (auto const operation : {Operation::all_reduce, Operation::reduce_scatter}) {
    auto const& expected = blocking.ledger()[operation];
    auto const& found = started.ledger()[operation];
    EXPECT_EQ(found.calls, blocking.size() == 1 ? 0 : 1) << name_of(operation);
    EXPECT_EQ(found.bytes, expected.bytes) << name_of(operation);
    EXPECT_EQ(found.sent_bytes, expected.sent_bytes) << name_of(operation);
  }
  EXPECT_EQ(started.ledger()[Operation::all_reduce].bytes, started.size() == 1 ? 0 : 2 * 45);
  EXPECT_EQ(started.ledger().total().calls, blocking.ledger().total().calls)
      << "inner exchanges are not counted";
}

TEST(AsynchronousSums, StartWithoutTheOtherRanks) {
  Communicator const world(MPI_COMM_WORLD, "world");
  Communicator const other(MPI_COMM_WORLD, "other");
  if (world.size() == 1) GTEST_SKIP() << "needs two ranks";
  std::vector<std::int32_t> go{1};
  Floats data(1'000'000, 1.0F); // too long for any library to send ahead
  Request request;

  if (world.rank() != 0) broadcast(host, other, go, 0);
  request = start_all_reduce(host, world, data, Reduction::sum, Wire::bf16);
  if (world.rank() == 0) {
    EXPECT_FALSE(request.test()) << "no other rank has begun";
    broadcast(host, other, go, 0);
  }
  request.wait();

  EXPECT_EQ(data, Floats(data.size(), static_cast<float>(world.size())));
}

TEST(AsynchronousSums, TestDrivesThemToTheirEnd) {
  Communicator const world(MPI_COMM_WORLD, "world");
  world.set_chunk_limit(7);
  OpenSums sums(world, 4, 30);
  std::vector<Request> requests;
  sums.start(requests);

  for (bool are_all_done = false; !are_all_done;) {
    are_all_done = true;
    for (auto& request : requests)
      are_all_done = request.test() && are_all_done;
  }

  sums.expect_complete(); // before any wait
  for (auto& request : requests)
    request.wait();
  sums.expect_complete();
}

/// Tags are taken again, while older sums are open.
TEST(AsynchronousSums, MayBeMany) {
  Communicator const world(MPI_COMM_WORLD, "world");
  constexpr std::size_t num_open = 3;
  std::array<Floats, num_open> data;
  std::array<Request, num_open> requests;
  for (std::size_t i = 0; i < 1200; ++i) {
    auto& buffer = data[i % num_open];
    requests[i % num_open].wait();
    if (i >= num_open) {
      auto const addend = static_cast<float>((i - num_open) % 50);
      EXPECT_EQ(buffer, Floats(4, addend * static_cast<float>(world.size())));
    }
    buffer = Floats(4, static_cast<float>(i % 50));
    requests[i % num_open] = start_all_reduce(host, world, buffer, Reduction::sum, Wire::fp16);
  }
  for (auto& request : requests)
    request.wait();
}

TEST(AsynchronousSums, AreRefusedBeforeTheirTagsRunOut) {
  Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "a group of one exchanges nothing";
  constexpr std::size_t most = 512;
  std::vector<Floats> data(most + 1, Floats(2, 1.0F));
  std::vector<Request> requests;
  for (std::size_t i = 0; i < most; ++i)
    requests.push_back(start_all_reduce(host, world, data[i], Reduction::sum, Wire::bf16));

  EXPECT_THROW(static_cast<void>(start_all_reduce(host, world, data[most], Reduction::sum, Wire::bf16)),
               Error);

  for (auto& request : requests)
    request.wait();
  start_all_reduce(host, world, data[most], Reduction::sum, Wire::bf16).wait();
  for (auto const& buffer : data)
    EXPECT_EQ(buffer, Floats(2, static_cast<float>(world.size())));
}

TEST(AsynchronousSums, FailForTheOneWhoWaitsForThem) {
  Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "a group of one encodes nothing";
  Floats too_large(static_cast<std::size_t>(world.size()), 40'000.0F); // each fits, no two of them together
  Floats fits(5, 1.0F);
  auto first = start_all_reduce(host, world, too_large, Reduction::sum, Wire::fp16);
  auto second = start_all_reduce(host, world, fits, Reduction::sum, Wire::fp16);

  EXPECT_NO_THROW(second.wait());
  EXPECT_THROW(first.wait(), Error);

  EXPECT_EQ(fits, Floats(5, static_cast<float>(world.size())));
  EXPECT_TRUE(first.test());
  first.wait(); // it is over
  EXPECT_EQ(all_reduced(world, 1), world.size()) << "the group is usable after";
}

TEST(AsynchronousSums, AreLeftAloneOnceAnErrorHasUnwound) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const part = world.split(0, world.rank(), "part");
  if (world.size() == 1) GTEST_SKIP() << "a group of one has nothing under way";
#if defined(__SANITIZE_ADDRESS__)
  __lsan_disable(); // its memory is left to MPI on purpose
#endif
  EXPECT_THROW(
      {
        Floats gone(100, 1.0F);
        auto const request = start_all_reduce(host, part, gone, Reduction::sum, Wire::bf16);
        throw std::runtime_error("an error elsewhere");
      },
      std::runtime_error);
#if defined(__SANITIZE_ADDRESS__)
  __lsan_enable();
#endif

  Floats next(100, 1.0F); // very likely where the lost buffer was
  auto request = start_all_reduce(host, world, next, Reduction::sum, Wire::fp16);
  barrier(host, world);
  request.wait();

  EXPECT_EQ(next, Floats(100, static_cast<float>(world.size())));
}

} // namespace
} // namespace orthant::testing
