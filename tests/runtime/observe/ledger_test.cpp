// SPDX-License-Identifier: Apache-2.0
//
// What the ledger holds after a known sequence of calls, and its sum over ranks; nothing where groups are of
// one.
#include "runtime/observe/ledger.hpp"

#include "runtime/comm/collectives.hpp"

#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;

constexpr std::array all_operations{Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter,
                                    Operation::broadcast,  Operation::all_to_all, Operation::send,
                                    Operation::receive,    Operation::barrier,    Operation::exclusive_scan};

TEST(Ledger, AddsAndClears) {
  Ledger ledger;

  ledger.add(Operation::broadcast, 10, 5);
  ledger.add(Operation::broadcast, 20, 15);
  ledger.add(Operation::barrier, 0, 0);
  ledger.add_seconds(Operation::broadcast, 0.5);

  EXPECT_EQ(ledger[Operation::broadcast], (LedgerEntry{2, 30, 20, 0.5}));
  EXPECT_EQ(ledger[Operation::barrier], (LedgerEntry{1, 0, 0, 0}));
  EXPECT_EQ(ledger.total(), (LedgerEntry{3, 30, 20, 0.5}));
  ledger.clear();
  for (auto const operation : all_operations)
    EXPECT_EQ(ledger[operation], LedgerEntry{});
}

TEST(Ledger, TakesTheCallsOfAnotherWithoutItsSeconds) {
  Ledger recorded;
  recorded.add(Operation::all_reduce, 8, 12);
  recorded.add_seconds(Operation::all_reduce, 0.5);
  Ledger ledger;

  ledger.add_calls(recorded);
  ledger.add_calls(recorded);

  EXPECT_EQ(ledger.total(), (LedgerEntry{2, 16, 24, 0}));
}

TEST(Ledger, SentBytesAreThoseOfRings) {
  // 4 ranks, a buffer of 40 bytes: the ring of an all_reduce passes 30 bytes a rank twice, that of a gather
  // once.
  EXPECT_EQ(sent_bytes(Operation::all_reduce, 40, 0, 4), 60);
  EXPECT_EQ(sent_bytes(Operation::all_gather, 40, 1, 4), 30);
  EXPECT_EQ(sent_bytes(Operation::reduce_scatter, 40, 2, 4), 30);
  EXPECT_EQ(sent_bytes(Operation::broadcast, 40, 3, 4), 30);
  EXPECT_EQ(sent_bytes(Operation::exclusive_scan, 40, 3, 4), 30);
  EXPECT_EQ(sent_bytes(Operation::all_to_all, 40, 0, 4), 40);
  EXPECT_EQ(sent_bytes(Operation::send, 40, 0, 4), 40);
  EXPECT_EQ(sent_bytes(Operation::receive, 40, 0, 4), 0);
  EXPECT_EQ(sent_bytes(Operation::barrier, 0, 0, 4), 0);
}

TEST(Ledger, SentBytesAddUpExactlyWhereRanksDoNotDivideThem) {
  // 8 bytes over 3 ranks: an all_reduce sends 2 x 2 x 8 = 32 in all: 11, 11 and 10.
  EXPECT_EQ(sent_bytes(Operation::all_reduce, 8, 0, 3), 11);
  EXPECT_EQ(sent_bytes(Operation::all_reduce, 8, 1, 3), 11);
  EXPECT_EQ(sent_bytes(Operation::all_reduce, 8, 2, 3), 10);
}

TEST(Ledger, NamesEveryOperationDifferently) {
  std::set<std::string_view> names;
  for (auto const operation : all_operations)
    names.insert(name_of(operation));

  EXPECT_EQ(names.size(), num_operations);
  EXPECT_EQ(names.count("unknown"), 0U);
}

/// One call of each kind, with lengths that give each a number of its own.
void communicate(Communicator const& comm, Wire wire) {
  auto const size = static_cast<std::size_t>(comm.size());
  std::vector<float> reduce(11);
  std::vector<float> part(5);
  std::vector<float> whole(5 * size);
  std::vector<float> other(whole.size());
  std::vector<float> message(13);
  std::vector<std::int64_t> counts(size, 2); // rank r's part: 2, rank 0's 2 + size
  counts[0] += comm.size();
  std::vector<float> uneven(
      static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})));
  std::vector<float> own(static_cast<std::size_t>(counts[static_cast<std::size_t>(comm.rank())]));

  all_reduce(host, comm, reduce, Reduction::sum, wire);
  all_gather(host, comm, part, whole, wire);
  all_gatherv(host, comm, own, uneven, counts, wire);
  reduce_scatter(host, comm, whole, part, Reduction::sum, wire);
  reduce_scatterv(host, comm, uneven, own, counts, Reduction::sum, wire);
  broadcast(host, comm, message, 0, wire);
  all_to_all(host, comm, whole, other, wire);
  exclusive_scan(comm, reduce);
  barrier(host, comm);
}

/// The scan never takes the 16-bit wire.
void expect_closed_forms(Communicator const& comm, std::int64_t element_bytes) {
  auto const size = static_cast<std::int64_t>(comm.size());
  auto const ledger = comm.ledger(); // as it is before the reductions of this check
  auto const expect = [&](Operation operation, std::int64_t calls, std::int64_t elements) {
    EXPECT_EQ(ledger[operation].calls, calls) << name_of(operation);
    EXPECT_EQ(ledger[operation].bytes, elements * element_bytes) << name_of(operation);
    EXPECT_GE(ledger[operation].seconds, 0) << name_of(operation);
  };
  expect(Operation::all_reduce, 1, 11);
  expect(Operation::all_gather, 2, 5 * size + (2 * size + size));
  expect(Operation::reduce_scatter, 2, 5 * size + (2 * size + size));
  expect(Operation::broadcast, 1, 13);
  expect(Operation::all_to_all, 1, 5 * (size - 1));
  expect(Operation::barrier, 1, 0);
  EXPECT_EQ(all_reduced(comm, ledger[Operation::all_reduce].sent_bytes), 2 * (size - 1) * 11 * element_bytes);
  EXPECT_EQ(all_reduced(comm, ledger[Operation::all_gather].sent_bytes),
            (size - 1) * 8 * size * element_bytes);
  EXPECT_EQ(all_reduced(comm, ledger[Operation::reduce_scatter].sent_bytes),
            (size - 1) * 8 * size * element_bytes);
  EXPECT_EQ(ledger[Operation::exclusive_scan].calls, 1);
  EXPECT_EQ(ledger[Operation::exclusive_scan].bytes, 4 * 11);
  EXPECT_EQ(ledger.total().calls, 9);

  // comm_bytes: the sum over ranks, counted equally everywhere here.
  auto const per_rank = element_bytes * (11 + 16 * size + 13 + 5 * (size - 1)) + 4 * 11;
  EXPECT_EQ(all_reduced(comm, ledger.total().bytes), size * per_rank);
}

TEST(Ledger, HoldsTheClosedFormsWhateverTheChunkLimit) {
  for (auto const limit : {std::int64_t{1}, std::int64_t{3}, std::int64_t{1} << 30})
    for (auto const wire : {Wire::native, Wire::bf16, Wire::fp16}) {
      Communicator const world(MPI_COMM_WORLD, "world");
      world.set_chunk_limit(limit);

      communicate(world, wire);

      if (world.size() == 1)
        EXPECT_EQ(world.ledger().total(), LedgerEntry{});
      else
        expect_closed_forms(world, wire == Wire::native ? 4 : 2);
    }
}

TEST(Ledger, CountsAllToAllvByWhatGoesToOthers) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const size = static_cast<std::size_t>(world.size());
  auto const rank = static_cast<std::size_t>(world.rank());
  std::vector<std::int64_t> send_counts;
  std::vector<std::int64_t> receive_counts;
  for (std::size_t r = 0; r < size; ++r) { // source s sends s + 2 d elements to d
    send_counts.push_back(static_cast<std::int64_t>(rank + 2 * r));
    receive_counts.push_back(static_cast<std::int64_t>(r + 2 * rank));
  }
  std::vector<double> in(size * rank + size * (size - 1));
  std::vector<double> out(size * (size - 1) / 2 + 2 * rank * size);

  all_to_allv(host, world, in, send_counts, out, receive_counts);

  auto const to_others = static_cast<std::int64_t>(8 * (in.size() - 3 * rank));
  EXPECT_EQ(world.ledger()[Operation::all_to_all].bytes, size == 1 ? 0 : to_others);
}

TEST(Ledger, CountsTheSenderOnly) {
  Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "needs two ranks";
  std::vector<std::int64_t> message(6);
  if (world.rank() == 0) send(host, world, message, 1);
  if (world.rank() == 1) receive(host, world, message, 0);

  EXPECT_EQ(world.ledger().total().bytes, world.rank() == 0 ? 48 : 0);
  EXPECT_EQ(world.ledger()[Operation::send].calls, world.rank() == 0 ? 1 : 0);
  EXPECT_EQ(world.ledger()[Operation::receive].calls, world.rank() == 1 ? 1 : 0);
  EXPECT_EQ(all_reduced(world, world.ledger().total().bytes), 48);
}

TEST(Ledger, CountsSecondsInsideTheCallAndInsideWait) {
  Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "needs two ranks";
  using Clock = std::chrono::steady_clock;
  std::vector<float> data(8);
  auto const seconds = [&] { return world.ledger()[Operation::all_reduce].seconds; };
  auto const began = Clock::now();

  all_reduce(host, world, data);
  auto const blocking = seconds();
  auto request = start_all_reduce(host, world, data);
  auto const started = seconds();
  request.wait();

  auto const elapsed = std::chrono::duration<double>(Clock::now() - began).count();
  EXPECT_GT(blocking, 0);
  EXPECT_GT(started, blocking);
  EXPECT_GT(seconds(), started);
  EXPECT_LE(seconds(), elapsed);
  EXPECT_EQ(world.ledger()[Operation::broadcast].seconds, 0);
}

TEST(Ledger, IsOneACommunicatorAndMovesWithIt) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto part = world.split(0, world.rank(), "X");
  std::vector<float> data(4);
  all_reduce(host, part, data);
  auto const before = part.ledger().total();
  EXPECT_EQ(world.ledger().total().calls, 0);

  auto const moved = std::move(part);

  EXPECT_EQ(moved.ledger().total(), before);
  EXPECT_EQ(moved.axis(), "X");
  all_reduce(host, moved, data);
  EXPECT_EQ(moved.ledger().total().calls, world.size() == 1 ? 0 : 2);
}

} // namespace
} // namespace orthant::testing
