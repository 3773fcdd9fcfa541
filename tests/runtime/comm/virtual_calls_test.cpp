// SPDX-License-Identifier: Apache-2.0
//
// The virtual clock of an emulated machine: what advances it, and when calls end. Processor time is a number that the
// test sets, and the seconds of calls are a formula of the test's own with exact numbers, so that clocks compare with EXPECT_EQ.
#include "runtime/comm/pending.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/report/timer.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;

constexpr double seconds_of_call = 0.5;
constexpr double seconds_per_byte = 1.0 / 1024;
constexpr double scale = 2;
constexpr int ranks_per_node = 2;
constexpr auto wire_bytes = [](std::size_t num_floats) { return 4.0 * static_cast<double>(num_floats); };

/// A machine whose calls take half a second and a kibisecond per byte that the ledger counts, and whose ranks work half as fast.
class VirtualClock : public ::testing::Test {
 protected:
  VirtualClock() { emulate(*instruments); }

  void emulate(Instruments& of, double overlap = 1) {
    EmulatedMachine machine{"test", ranks_per_node, scale, [this](EmulatedCall const& call) {
                              processor += 100; // what MPI does meanwhile
                              last_ranks.assign(call.ranks.begin(), call.ranks.end());
                              last_sent = call.sent_bytes;
                              return seconds_of_call + seconds_per_byte * static_cast<double>(call.bytes);
                            }};
    machine.overlap = overlap;
    of.clock.emulate(machine, [this] { return processor; });
  }
  void work(double seconds) { processor += seconds / scale; }
  [[nodiscard]] double clock() const { return instruments->clock.virtual_seconds(); }
  [[nodiscard]] int rank() const { return world.rank(); }
  [[nodiscard]] int last() const { return world.size() - 1; }
  [[nodiscard]] bool is_alone() const { return world.size() == 1; }

  double processor = 7;
  std::vector<int> last_ranks;
  std::int64_t last_sent = 0;
  std::shared_ptr<Instruments> instruments = std::make_shared<Instruments>();
  Communicator world{MPI_COMM_WORLD, "world", instruments};
};

TEST_F(VirtualClock, CountsScaledProcessorTime) {
  EXPECT_EQ(clock(), 0);
  work(0.25);
  EXPECT_EQ(clock(), 0.25);
  {
    RunClock::Paused const outer(instruments->clock);
    work(4);
    RunClock::Paused const inner(instruments->clock);
    work(8);
  }
  EXPECT_EQ(clock(), 0.25);
  auto const begin = instruments->clock.now();
  work(0.5);
  EXPECT_EQ(instruments->clock.now() - begin, std::chrono::milliseconds(500));
  instruments->clock.wait_for_work(begin, 0.125); // was over before
  EXPECT_EQ(clock(), 0.75);
  instruments->clock.wait_for_work(begin, 0.75);
  EXPECT_EQ(clock(), 1);
  EXPECT_EQ(instruments->clock.work_seconds(), scale * processor);
}

TEST_F(VirtualClock, WorkHidesAShareOfACall) {
  // A call from 0 to 4 seconds, 2 of work meanwhile: all of the work, half of it or none is hidden.
  for (auto const& [overlap, end] : {std::pair(1.0, 4.0), {0.5, 5.0}, {0.0, 6.0}}) {
    Instruments of_share;
    of_share.clock.emulate({"test", ranks_per_node, scale, {}, overlap}, [this] { return processor; });
    work(2);
    of_share.clock.wait_for_call(0, 4);
    EXPECT_EQ(of_share.clock.virtual_seconds(), end);
    of_share.clock.wait_for_call(0, 1); // was over before, if work hides it at all
    EXPECT_EQ(of_share.clock.virtual_seconds(), overlap > 0 ? end : end + 1);
  }
}

TEST_F(VirtualClock, EqualStepsTakeTheirMedianPieceByPiece) {
  // Two pieces per step, 3 and 1 seconds; the first is disturbed in the steps 1, 4 and 5, and shrinks to 2 seconds from step 7 on.
  std::vector<double> const first_pieces{8, 3, 3, 9, 7, 3, 2, 2, 2, 2, 2, 2, 2};
  // Medians of the last nine, of two in the middle the shorter one.
  std::vector<double> const expected{8, 3, 3, 3, 7, 3, 3, 3, 3, 3, 2, 2, 2};
  SteadyWork steady, other;
  for (std::size_t step = 0; step < first_pieces.size(); ++step) {
    auto const before = clock();
    work(static_cast<double>(step)); // belongs to no step, and counts in full
    EXPECT_EQ(clock() - before, static_cast<double>(step));
    {
      RunClock::EqualStep const of_another(instruments->clock, other); // with a history of its own
      work(50);
    }
    EXPECT_EQ(clock() - before, static_cast<double>(step) + 50);

    RunClock::EqualStep const equal_step(instruments->clock, steady);
    auto const begin = clock();
    work(first_pieces[step]);
    {
      RunClock::Paused const paused(instruments->clock); // not a piece, however often it happens
      work(100);
    }
    auto const middle = clock();
    work(1);

    EXPECT_EQ(middle - begin, expected[step]) << "step " << step;
    EXPECT_EQ(clock() - middle, 1) << "step " << step;
  }
}

TEST_F(VirtualClock, IsTheProcessorTimeOfTheThread) {
  Instruments real;
  auto const before = thread_processor_seconds();
  auto sum = 0.0;
  while (thread_processor_seconds() - before < 1e-3)
    sum += before;
  EXPECT_GE(thread_processor_seconds(), before + 1e-3) << sum;
  EXPECT_EQ(real.clock.machine(), nullptr);
  EXPECT_FALSE(real.clock.shared_origin());
}

TEST_F(VirtualClock, ACallEndsAfterTheLatestRank) {
  work(rank());
  std::vector<float> data(256, 1);
  all_reduce(host, world, data);

  if (is_alone()) {
    EXPECT_EQ(clock(), 0);
    return;
  }
  auto const end = last() + seconds_of_call + seconds_per_byte * wire_bytes(256);
  EXPECT_EQ(clock(), end);
  EXPECT_EQ(world.ledger()[Operation::all_reduce].seconds, end - rank());
  EXPECT_EQ(last_sent, sent_bytes(Operation::all_reduce, 1024, rank(), world.size()));
  EXPECT_EQ(data.front(), static_cast<float>(world.size()));
}

TEST_F(VirtualClock, ACallTakesWhatItTakesOnTheSlowestRank) {
  if (is_alone()) GTEST_SKIP() << "nothing travels";
  // The last rank sends 8 floats to rank 0, the others send none.
  std::vector<std::int64_t> send_counts(static_cast<std::size_t>(world.size()), 0);
  auto receive_counts = send_counts;
  if (rank() == last()) send_counts.front() = 8;
  if (rank() == 0) receive_counts.back() = 8;
  std::vector<float> out(rank() == last() ? 8 : 0);
  std::vector<float> in(rank() == 0 ? 8 : 0);
  all_to_allv(host, world, out, send_counts, in, receive_counts);

  EXPECT_EQ(clock(), seconds_of_call + seconds_per_byte * wire_bytes(8));
}

TEST_F(VirtualClock, WorkHidesACallThatIsUnderWay) {
  if (is_alone()) GTEST_SKIP() << "nothing travels";
  std::vector<float> data(64, 1);
  auto const seconds = seconds_of_call + seconds_per_byte * wire_bytes(64);
  work(0.25 * rank());
  auto request = start_all_reduce(host, world, data);
  EXPECT_EQ(clock(), 0.25 * rank()) << "nobody waits";
  EXPECT_EQ(world.ledger()[Operation::all_reduce].seconds, 0);
  work(rank() == 0 ? 100 : 0);
  while (!request.test())
    processor += 1e-3; // time that tests take counts only between them
  auto const before = clock();
  request.wait();

  if (rank() == 0)
    EXPECT_EQ(clock(), before) << "it was over";
  else
    EXPECT_EQ(clock(), std::max(before, 0.25 * last() + seconds));
}

TEST_F(VirtualClock, CallsOfAGroupFollowOneAnother) {
  if (is_alone()) GTEST_SKIP() << "nothing travels";
  std::vector<float> first(64, 1);
  std::vector<float> second(128, 1);
  std::vector<float> third(64, 1);
  auto const of_first = seconds_of_call + seconds_per_byte * wire_bytes(64);
  auto const of_second = seconds_of_call + seconds_per_byte * wire_bytes(128);
  auto one = start_all_reduce(host, world, first);
  auto two = start_all_reduce(host, world, second);
  two.wait();
  EXPECT_EQ(clock(), of_first + of_second);
  one.wait();
  EXPECT_EQ(clock(), of_first + of_second) << "was over before";
  work(1);
  all_reduce(host, world, third);
  EXPECT_EQ(clock(), of_first + of_second + 1 + of_first);
}

TEST_F(VirtualClock, GroupsDoNotWaitForOneAnother) {
  if (world.size() < 3) GTEST_SKIP() << "a group of one needs no clock";
  auto const parity = rank() % 2;
  auto const group = world.split(parity, rank(), "parity");
  auto const other = world.split(0, rank(), "all again");
  work(rank());
  std::vector<float> data(1, 1);
  auto request = start_all_reduce(host, other, data);
  std::vector<float> more(1, 1);
  all_reduce(host, group, more);

  auto const latest = last() % 2 == parity ? last() : last() - 1;
  auto const seconds = seconds_of_call + seconds_per_byte * wire_bytes(1);
  if (group.size() > 1) {
    EXPECT_EQ(clock(), latest + seconds);
    std::vector<int> expected;
    for (int r = parity; r <= last(); r += 2)
      expected.push_back(r);
    EXPECT_EQ(last_ranks, expected);
  }
  request.wait();
  EXPECT_EQ(clock(), last() + seconds) << "each group has a link of its own";
}

TEST_F(VirtualClock, AMessageArrivesWhenItIsThere) {
  if (is_alone()) GTEST_SKIP() << "nothing travels";
  auto const seconds = seconds_of_call + seconds_per_byte * wire_bytes(16);
  std::vector<float> first(16, 1);
  std::vector<float> second(16, 2);
  if (rank() == 0) {
    work(3);
    auto one = start_send(host, world, first, last(), 5);
    auto two = start_send(host, world, second, last(), 4);
    one.wait();
    EXPECT_EQ(clock(), 3 + seconds);
    two.wait();
    EXPECT_EQ(clock(), 3 + 2 * seconds) << "one after the other";
  } else if (rank() == last()) {
    work(1);
    receive(host, world, second, 0, 4); // tags tell them apart
    EXPECT_EQ(clock(), 3 + 2 * seconds);
    receive(host, world, first, 0, 5);
    EXPECT_EQ(clock(), 3 + 2 * seconds) << "was there before";
    EXPECT_EQ(second.front(), 2);
    EXPECT_EQ(first.front(), 1);
  }
}

TEST_F(VirtualClock, AReceiverThatComputesMeanwhileDoesNotDelayAMessage) {
  if (is_alone()) GTEST_SKIP() << "nothing travels";
  emulate(*instruments, 0); // nothing overlaps
  auto const seconds = seconds_of_call + seconds_per_byte * wire_bytes(16);
  std::vector<float> numbers(16, 1);
  if (rank() == 0) {
    work(3);
    send(host, world, numbers, last());
  } else if (rank() == last()) {
    auto request = start_receive(host, world, numbers, 0);
    work(2);
    request.wait();
    EXPECT_EQ(clock(), 3 + seconds);
  }
}

TEST_F(VirtualClock, NodesAreTheMachines) {
  EXPECT_TRUE(world.shares_memory());
  EXPECT_EQ(world.is_on_one_node(), world.size() <= ranks_per_node);
  auto const node = world.split(rank() / ranks_per_node, rank(), "node");
  EXPECT_TRUE(node.is_on_one_node());
  EXPECT_EQ(node.job_ranks().front(), rank() / ranks_per_node * ranks_per_node);
  Communicator const real(MPI_COMM_WORLD, "real");
  EXPECT_TRUE(real.is_on_one_node());
}

TEST_F(VirtualClock, ChangesNoNumber) {
  auto const sums = [](Communicator const& comm, Wire wire) {
    std::vector<float> data(1000);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = 1.0F / static_cast<float>(i + 1 + static_cast<std::size_t>(comm.rank()));
    auto later = data;
    auto request = start_all_reduce(host, comm, later, Reduction::sum, wire);
    all_reduce(host, comm, data, Reduction::sum, wire);
    request.wait();
    data.insert(data.end(), later.begin(), later.end());
    return data;
  };
  Communicator const real(MPI_COMM_WORLD, "real");
  for (auto const wire : {Wire::native, Wire::bf16})
    EXPECT_EQ(sums(world, wire), sums(real, wire));
  auto const counts = [](Communicator const& comm) {
    auto entry = comm.ledger().total();
    entry.seconds = 0;
    return entry;
  };
  EXPECT_EQ(counts(world), counts(real));
}

TEST_F(VirtualClock, IsThatOfPhasesAndTraces) {
  instruments->trace.start(Trace::default_capacity, instruments->clock.shared_origin());
  PhaseTimes phases;
  work(2);
  {
    ScopedTimer const timer(*instruments, phases, "work");
    work(0.75);
  }
  EXPECT_EQ(phases.seconds("work"), 0.75);
  EXPECT_EQ(instruments->trace.origin_of_system_ns(), 0);
  auto const events = instruments->trace.events_of(0, instruments->trace.num_records(), 0);
  EXPECT_NE(events.find(R"("ts":2000000.000,"dur":750000.000)"), std::string::npos) << events;
}

} // namespace
} // namespace orthant::testing
