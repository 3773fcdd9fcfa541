// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous collectives: many open at once, waited for in any order, polled, moved, dropped.
#include "runtime/comm/collectives.hpp"
#include "support/axis_groups.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>
#include <numeric>
#include <stdexcept>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace orthant::testing {
namespace {

using namespace orthant::runtime;

/// Buffers of one set of collectives that are open at the same time; all entries are exact.
struct OpenSet {
  OpenSet(Communicator const& group, std::int32_t number, std::size_t count)
      : comm(group),
        size(group.size()),
        rank(group.rank()),
        salt(number),
        length(count),
        sum(count, number + rank),
        largest(count, static_cast<double>(rank - number)),
        part(count, number * 10 + rank),
        gathered(count * static_cast<std::size_t>(size)),
        addends(gathered.size()),
        scattered(count),
        message(count, rank == size - 1 ? static_cast<float>(number) : -1.0F),
        outgoing(gathered.size()),
        incoming(gathered.size()) {
    for (std::size_t i = 0; i < addends.size(); ++i)
      addends[i] = static_cast<std::int64_t>(i) + rank + salt;
    for (int r = 0; r < size; ++r)
      std::fill_n(outgoing.begin() + static_cast<std::ptrdiff_t>(length) * r, length, salt + rank * size + r);
    for (int r = 0; r < size; ++r)
      counts.push_back(static_cast<std::int64_t>(length));
  }

  void start(std::vector<Request>& requests) {
    requests.push_back(start_all_reduce(host, comm, sum));
    requests.push_back(start_all_gather(host, comm, part, gathered));
    requests.push_back(start_reduce_scatterv(host, comm, addends, scattered, counts));
    requests.push_back(start_broadcast(host, comm, message, size - 1));
    requests.push_back(start_all_to_allv(host, comm, outgoing, counts, incoming, counts));
    requests.push_back(start_all_reduce(host, comm, largest, Reduction::max));
  }

  void expect_complete() const {
    EXPECT_EQ(sum, (std::vector<std::int32_t>(length, salt * size + size * (size - 1) / 2)));
    EXPECT_EQ(largest, std::vector<double>(length, size - 1 - salt));
    EXPECT_EQ(message, std::vector<float>(length, static_cast<float>(salt)));
    for (std::size_t i = 0; i < gathered.size(); ++i)
      ASSERT_EQ(gathered[i], salt * 10 + static_cast<std::int32_t>(i / length));
    for (std::size_t i = 0; i < length; ++i)
      ASSERT_EQ(scattered[i],
                (static_cast<std::int64_t>(i + length * static_cast<std::size_t>(rank)) + salt) * size +
                    size * (size - 1) / 2);
    for (std::size_t i = 0; i < incoming.size(); ++i)
      ASSERT_EQ(incoming[i], salt + static_cast<std::int32_t>(i / length) * size + rank);
  }

  Communicator const& comm;
  int size;
  int rank;
  std::int32_t salt;
  std::size_t length;
  std::vector<std::int32_t> sum;
  std::vector<double> largest;
  std::vector<std::int32_t> part, gathered;
  std::vector<std::int64_t> addends, scattered, counts;
  std::vector<float> message;
  std::vector<std::int32_t> outgoing, incoming;
};

void expect_any_order_of_waits(Communicator const& comm) {
  constexpr std::size_t num_orders = 3;
  for (std::size_t order = 0; order < num_orders; ++order) {
    OpenSet first(comm, 3, 50);
    OpenSet second(comm, 8, 1);
    std::vector<Request> requests;
    first.start(requests);
    second.start(requests);
    auto const count = requests.size();

    for (std::size_t i = 0; i < count; ++i) {
      auto const turned = (i + static_cast<std::size_t>(comm.rank()) * 5) % count; // another on every rank
      requests[order == 0 ? i : order == 1 ? count - 1 - i : turned].wait();
    }

    first.expect_complete();
    second.expect_complete();
  }
}

TEST(Requests, MayBeWaitedForInAnyOrder) {
  Communicator const world(MPI_COMM_WORLD, "world");

  for (auto const limit : {std::int64_t{7}, std::int64_t{1000}}) {
    world.set_chunk_limit(limit);
    expect_any_order_of_waits(world);
    for (auto const& group : axis_groups(world, grids_4d(world.size()).back()))
      expect_any_order_of_waits(group.comm);
  }
}

TEST(Requests, OfSeveralGroupsMayBeOpenAtOnce) {
  Communicator const world(MPI_COMM_WORLD, "world");
  for (auto const& shape : grids_4d(world.size())) {
    auto const groups = axis_groups(world, shape);
    std::vector<OpenSet> sets;
    for (std::size_t axis = 0; axis < groups.size(); ++axis)
      sets.emplace_back(groups[axis].comm, static_cast<std::int32_t>(axis) + 1, 20);
    std::vector<Request> requests;
    for (auto& set : sets)
      set.start(requests);

    for (auto request = requests.rbegin(); request != requests.rend(); ++request)
      request->wait();

    for (auto const& set : sets)
      set.expect_complete();
  }
}

TEST(Requests, TestDrivesTheOperationToItsEnd) {
  Communicator const world(MPI_COMM_WORLD, "world");
  world.set_chunk_limit(7);
  OpenSet set(world, 4, 30);
  std::vector<Request> requests;
  set.start(requests);

  for (bool are_all_done = false; !are_all_done;) {
    are_all_done = true;
    for (auto& request : requests)
      are_all_done = request.test() && are_all_done;
  }

  set.expect_complete(); // before any wait
  for (auto& request : requests) {
    request.wait();
    request.wait(); // idempotent
    EXPECT_TRUE(request.test());
  }
  set.expect_complete();
}

TEST(Requests, TestDoesNotWait) {
  Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "needs two ranks";
  constexpr int go = 1;
  constexpr int answer = 2;
  std::vector<std::int32_t> message{0};
  if (world.rank() == 0) {
    auto request = start_receive(host, world, message, 1, answer);
    EXPECT_FALSE(request.test()); // rank 1 sends only once it is told to
    send(host, world, std::vector<std::int32_t>{41}, 1, go);
    while (!request.test()) {
    }
    EXPECT_EQ(message[0], 42);
    request.wait();
  } else if (world.rank() == 1) {
    receive(host, world, message, 0, go);
    message[0] += 1;
    send(host, world, message, 0, answer);
  }
}

TEST(Requests, MatchMessagesByTagAndKeepTheirOrder) {
  Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "needs two ranks";
  world.set_chunk_limit(4);
  auto const next = (world.rank() + 1) % world.size();
  auto const previous = (world.rank() + world.size() - 1) % world.size();
  std::vector<std::vector<std::int32_t>> out(3, std::vector<std::int32_t>(10));
  std::vector<std::vector<std::int32_t>> in;
  for (int m = 0; m < 3; ++m)
    in.push_back(std::vector<std::int32_t>(10, world.rank() * 10 + m));

  // Messages 0 and 2 share a tag and arrive in order; message 1 is received first though sent between them.
  auto first = start_receive(host, world, out[1], previous, 32'000);
  auto second = start_receive(host, world, out[0], previous, 9);
  auto third = start_receive(host, world, out[2], previous, 9);
  std::vector<Request> sends;
  sends.push_back(start_send(host, world, in[0], next, 9));
  sends.push_back(start_send(host, world, in[1], next, 32'000));
  sends.push_back(start_send(host, world, in[2], next, 9));
  third.wait();
  first.wait();
  second.wait();
  for (auto& request : sends)
    request.wait();

  for (int m = 0; m < 3; ++m)
    EXPECT_EQ(out[static_cast<std::size_t>(m)], std::vector<std::int32_t>(10, previous * 10 + m));
}

TEST(Requests, AreCompletedWhenDroppedOrReplaced) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const sum = world.size() * (world.size() + 1) / 2;
  std::vector<std::int32_t> dropped(100, world.rank() + 1);
  auto replaced = dropped;
  auto moved = dropped;
  auto last = dropped;

  { auto const request = start_all_reduce(host, world, dropped); }
  EXPECT_EQ(dropped, std::vector<std::int32_t>(100, sum));

  auto request = start_all_reduce(host, world, replaced);
  request = start_all_reduce(host, world, last);
  EXPECT_EQ(replaced, std::vector<std::int32_t>(100, sum));

  auto source = start_all_reduce(host, world, moved);
  auto target = std::move(source);
  EXPECT_TRUE(source.test()); // NOLINT: a moved-from request is complete
  source.wait();              // and does nothing
  target.wait();
  EXPECT_EQ(moved, std::vector<std::int32_t>(100, sum));

  request.wait();
  EXPECT_EQ(last, std::vector<std::int32_t>(100, sum));

  Request nothing;
  EXPECT_TRUE(nothing.test());
  nothing.wait();
}

TEST(Requests, AreAbandonedWhileAnErrorUnwinds) {
  Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "needs two ranks";
  std::vector<std::int32_t> message{0};
#if defined(__SANITIZE_ADDRESS__)
  __lsan_disable(); // its memory is left to MPI on purpose
#endif
  if (world.rank() == 0) {
    EXPECT_THROW(
        {
          auto const request = start_receive(host, world, message, 1, 5); // nobody sends yet
          throw std::runtime_error("an error elsewhere");
        },
        std::runtime_error);
  }
#if defined(__SANITIZE_ADDRESS__)
  __lsan_enable();
#endif
  barrier(host, world); // rank 0 came this far: its destructor did not wait

  if (world.rank() == 1) send(host, world, std::vector<std::int32_t>{6}, 0, 5);
  barrier(host, world);
}

} // namespace
} // namespace orthant::testing
