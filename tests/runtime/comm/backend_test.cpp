// SPDX-License-Identifier: Apache-2.0
//
// Backends of a communicator: one of the test's own beside those that are there, on host memory and on the
// streams of a device; and MPI by way of staging.
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/echo_backend.hpp"
#include "runtime/comm/fake_device.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>
#include <numeric>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;
using Floats = std::vector<float>;

/// A number of bf16, and so are its multiples up to 8.
constexpr float three = 3.0F;

class Backends : public ::testing::Test {
 protected:
  void SetUp() override {
    if (world.size() == 1) GTEST_SKIP() << "a group of one asks no backend";
  }
  void use_echo(EchoBackend::Kind kind) { world.use_backend(std::make_unique<EchoBackend>(kind, num_calls)); }

  /// Entries that a rank owns alike, so that the echo of one part is the echo of every part.
  [[nodiscard]] Floats equal_entries() const {
    return Floats(4 * static_cast<std::size_t>(world.size()), three);
  }
  [[nodiscard]] Floats summed_by_echo() const {
    return Floats(equal_entries().size(), three * static_cast<float>(world.size()));
  }

  Communicator world{MPI_COMM_WORLD, "world"};
  int num_calls = 0;
  FakeDevice::Counts counts;
  FakeDevice device{&counts};
};

TEST_F(Backends, AnotherOneGetsWhatItTakes) {
  use_echo(EchoBackend::Kind::host);
  auto echoed = equal_entries();
  std::vector<double> summed(3, world.rank());
  Floats largest(3, static_cast<float>(world.rank()));

  all_reduce(host, world, echoed);
  all_reduce(host, world, summed); // not of its types
  all_reduce(host, world, largest, Reduction::max);

  EXPECT_EQ(num_calls, 1);
  EXPECT_EQ(echoed, summed_by_echo());
  EXPECT_EQ(summed, std::vector<double>(3, world.size() * (world.size() - 1) / 2.0));
  EXPECT_EQ(largest, Floats(3, static_cast<float>(world.size() - 1)));
  auto const bytes = static_cast<std::int64_t>(4 * (echoed.size() + 3) + 8 * 3);
  EXPECT_EQ(world.ledger()[Operation::all_reduce].calls, 3);
  EXPECT_EQ(world.ledger()[Operation::all_reduce].bytes, bytes);
}

TEST_F(Backends, BelongToOneCommunicator) {
  use_echo(EchoBackend::Kind::host);
  Communicator const other(MPI_COMM_WORLD, "other");
  auto const part = world.split(0, world.rank(), "part");

  for (auto const* comm : {&other, &part}) {
    Floats data(2, 1.0F + static_cast<float>(comm->rank()));
    all_reduce(host, *comm, data);
    EXPECT_EQ(data, Floats(2, static_cast<float>(comm->size() * (comm->size() + 1) / 2)));
  }

  EXPECT_EQ(num_calls, 0);
}

TEST_F(Backends, MayCarryThingsOutLater) {
  use_echo(EchoBackend::Kind::host);
  auto waited = equal_entries();
  auto tested = equal_entries();

  auto first = start_all_reduce(host, world, waited);
  auto second = start_all_reduce(host, world, tested);
  EXPECT_EQ(waited, equal_entries()) << "before it is waited for";
  first.wait();
  EXPECT_EQ(tested, equal_entries()) << "before it is waited for";
  while (!second.test()) {
  }

  EXPECT_EQ(waited, summed_by_echo());
  EXPECT_EQ(tested, summed_by_echo());
  EXPECT_EQ(num_calls, 2);
}

TEST_F(Backends, MoveEncodedNumbersAsBytes) {
  use_echo(EchoBackend::Kind::host);
  for (auto const wire : {Wire::bf16, Wire::fp16}) {
    num_calls = 0;
    auto blocking = equal_entries();
    auto waited = equal_entries();
    auto moved = equal_entries();
    Floats part(4);
    Floats gathered(equal_entries().size());

    all_reduce(host, world, blocking, Reduction::sum, wire);
    start_all_reduce(host, world, waited, Reduction::sum, wire).wait();
    reduce_scatter(host, world, equal_entries(), part, Reduction::sum, wire);
    all_gather(host, world, Floats(4, three), gathered, wire);
    all_to_all(host, world, equal_entries(), moved, wire);

    EXPECT_EQ(blocking, summed_by_echo());
    EXPECT_EQ(waited, summed_by_echo());
    EXPECT_EQ(part, Floats(4, three * static_cast<float>(world.size())));
    EXPECT_EQ(gathered, equal_entries());
    EXPECT_EQ(moved, equal_entries());
    EXPECT_EQ(num_calls, 2 + 2 + 1 + 1 + 1) << "a sum of all is an exchange and a gather";
  }
}

TEST_F(Backends, OnAStreamAreOverForTheHostAtOnce) {
  EXPECT_FALSE(world.works_on_streams());
  use_echo(EchoBackend::Kind::stream);
  EXPECT_TRUE(world.works_on_streams());
  FakeDeviceVector<float> native{equal_entries()};
  FakeDeviceVector<float> encoded{equal_entries()};

  auto first = start_all_reduce(device, world, native);
  auto second = start_all_reduce(device, world, encoded, Reduction::sum, Wire::bf16);

  EXPECT_EQ(native.values, summed_by_echo());
  EXPECT_EQ(encoded.values, summed_by_echo());
  EXPECT_TRUE(first.test());
  EXPECT_TRUE(second.test());
  first.wait();
  second.wait();
  EXPECT_EQ(counts.encodings, 1) << "all parts in one kernel";
  EXPECT_EQ(counts.sums, 1);
  EXPECT_EQ(counts.fences + counts.copies, 0) << "the host never waits";
  EXPECT_EQ(num_calls, 3);
}

TEST_F(Backends, LeaveBuffersOfTheHostToMpi) {
  use_echo(EchoBackend::Kind::stream);
  Floats data(5, 1.0F + static_cast<float>(world.rank()));

  all_reduce(host, world, data, Reduction::sum, Wire::bf16);

  EXPECT_EQ(data, Floats(5, static_cast<float>(world.size() * (world.size() + 1) / 2)));
  EXPECT_EQ(num_calls, 0);
}

/// What MPI does on the host, done on buffers of a device that MPI does not know.
TEST_F(Backends, StageWhatLiesOnADevice) {
  if (mpi_is_device_aware()) GTEST_SKIP() << "MPI would take the buffers as they are";
  world.set_chunk_limit(7);
  auto const size = static_cast<std::size_t>(world.size());
  for (auto const wire : {Wire::native, Wire::bf16}) {
    for (auto const is_asynchronous : {false, true}) {
      Floats mine(5 * size);
      std::iota(mine.begin(), mine.end(), 0.25F * static_cast<float>(world.rank() + 1));
      auto expected = mine;
      Floats expected_part(5);
      Floats expected_all(mine.size() * size);
      FakeDeviceVector<float> data{mine};
      FakeDeviceVector<float> part{Floats(5)};
      FakeDeviceVector<float> all{Floats(mine.size() * size)};
      FakeDeviceVector<float> const source{mine};

      if (is_asynchronous) {
        start_all_reduce(host, world, expected, Reduction::sum, wire).wait();
        start_reduce_scatter(host, world, mine, expected_part, Reduction::sum, wire).wait();
        start_all_gather(host, world, mine, expected_all, wire).wait();
        start_all_reduce(device, world, data, Reduction::sum, wire).wait();
        start_reduce_scatter(device, world, source, part, Reduction::sum, wire).wait();
        start_all_gather(device, world, source, all, wire).wait();
      } else {
        all_reduce(host, world, expected, Reduction::sum, wire);
        reduce_scatter(host, world, mine, expected_part, Reduction::sum, wire);
        all_gather(host, world, mine, expected_all, wire);
        all_reduce(device, world, data, Reduction::sum, wire);
        reduce_scatter(device, world, source, part, Reduction::sum, wire);
        all_gather(device, world, source, all, wire);
      }

      EXPECT_EQ(data.values, expected);
      EXPECT_EQ(part.values, expected_part);
      EXPECT_EQ(all.values, expected_all);
    }
  }
  EXPECT_EQ(counts.encodings, 0) << "what is staged is encoded on the host";
  EXPECT_EQ(counts.copies, 4 * (2 + 2 + 2));
}

/// The own part of an exchange, which a rank need not send to itself.
TEST_F(Backends, StageWhatStays) {
  if (mpi_is_device_aware()) GTEST_SKIP() << "MPI would take the buffers as they are";
  auto const size = static_cast<std::size_t>(world.size());
  auto const rank = static_cast<std::size_t>(world.rank());
  std::vector<std::int64_t> send_counts(size, 1);
  send_counts[rank] = 0;
  std::vector<std::int64_t> const receive_counts(size, 1);
  FakeDeviceVector<float> const source{Floats(size - 1, static_cast<float>(rank))};
  FakeDeviceVector<float> out{Floats(size, -1.0F)};

  all_to_allv(device, world, source, send_counts, out, receive_counts);

  Floats expected(size);
  std::iota(expected.begin(), expected.end(), 0.0F);
  expected[rank] = -1.0F;
  EXPECT_EQ(out.values, expected);
}

} // namespace
} // namespace orthant::testing
