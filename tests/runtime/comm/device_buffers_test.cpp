// SPDX-License-Identifier: Apache-2.0
//
// Operations on buffers that kernels write and read: on a device they travel by way of pinned memory or by
// the device's own backend, and are ordered with its queue; on the host they are plain buffers.
#include "runtime/arrays/views.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/device/pinned_pool.hpp"

#include <gtest/gtest.h>
#include <vector>

namespace orthant::runtime {
namespace {

struct Fill {
  Vector<double> numbers;
  double first;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    numbers(static_cast<std::size_t>(i)) = first + static_cast<double>(i);
  }
};

Vector<double> made(DefaultExec const& exec, std::size_t count, double first) {
  Vector<double> numbers("orthant::testing::numbers", count);
  Kokkos::parallel_for(
      "orthant::testing::fill",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, static_cast<std::int64_t>(count)),
      Fill{numbers, first});
  return numbers;
}

void expect_numbers(Vector<double> const& numbers, double first, double step) {
  auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), numbers);
  for (std::size_t i = 0; i < found.extent(0); ++i)
    ASSERT_EQ(found(i), first + step * static_cast<double>(i)) << i;
}

TEST(DeviceBuffers, SumsInLineAndUnderWayEqualEachOther) {
  Communicator const world(MPI_COMM_WORLD, "world");
  DefaultExec const exec;
  auto const size = static_cast<double>(world.size());
  auto const of_ranks = size * (size - 1) / 2;
  for (std::size_t const count : {0, 1, 5'000}) {
    auto const sum = made(exec, count, world.rank());
    auto const later = made(exec, count, 10.0 * world.rank());

    all_reduce(exec, world, sum);
    auto request = start_all_reduce(exec, world, later);
    auto const meanwhile = made(exec, count, 7); // a kernel between start and end
    request.wait();
    compat::fence(exec, "orthant::testing/the sums are read");

    expect_numbers(sum, of_ranks, size);
    expect_numbers(later, 10 * of_ranks, size);
    expect_numbers(meanwhile, 7, 1);
  }
}

TEST(DeviceBuffers, GathersAndScattersOfUnequalParts) {
  Communicator const world(MPI_COMM_WORLD, "world");
  DefaultExec const exec;
  std::vector<std::int64_t> counts; // 0, 1, 2, ..
  std::int64_t total = 0;
  for (int r = 0; r < world.size(); ++r) {
    counts.push_back(r);
    total += r;
  }
  auto const mine = static_cast<std::size_t>(world.rank());
  auto const before = mine * (mine - (mine > 0 ? 1 : 0)) / 2;
  auto const part = made(exec, mine, static_cast<double>(before));
  Vector<double> const whole("orthant::testing::whole", static_cast<std::size_t>(total));
  Vector<double> const scattered("orthant::testing::scattered", mine);

  all_gatherv(exec, world, part, whole, counts);
  auto request = start_reduce_scatterv(exec, world, whole, scattered, counts);
  request.wait();
  compat::fence(exec, "orthant::testing/the parts are read");

  expect_numbers(whole, 0, 1);
  expect_numbers(scattered, static_cast<double>(world.size()) * static_cast<double>(before), world.size());
}

TEST(DeviceBuffers, TheLargestValueWinsWhereverItLies) {
  Communicator const world(MPI_COMM_WORLD, "world");
  DefaultExec const exec;
  Vector<ValueIndex<double>> const best("orthant::testing::best", 2);
  auto const mirror = Kokkos::create_mirror_view(best);
  mirror(0) = {static_cast<double>(world.rank()), world.rank()};
  mirror(1) = {1, world.rank()};
  Kokkos::deep_copy(best, mirror);

  all_reduce_arg_max(exec, world, best);
  compat::fence(exec, "orthant::testing/the largest are read");

  Kokkos::deep_copy(mirror, best);
  auto const last = world.size() - 1;
  EXPECT_EQ(mirror(0), (ValueIndex<double>{static_cast<double>(last), last}));
  EXPECT_EQ(mirror(1), (ValueIndex<double>{1, 0}));
}

TEST(PinnedPool, LendsTheSmallestThatFitsAndKeepsWhatItGets) {
  auto const small = lend_pinned(1'000'003);
  auto const large = lend_pinned(3'000'017);
  EXPECT_GE(small.size(), 1'000'003U);
  auto const none = lend_pinned(0);
  EXPECT_NE(none.data(), nullptr) << "of an empty message, too";
  give_back_pinned(none);
  give_back_pinned(large);
  give_back_pinned(small);

  auto const again = lend_pinned(1'000'000);
  EXPECT_EQ(again.data(), small.data());
  auto const larger = lend_pinned(1'000'100);
  EXPECT_EQ(larger.data(), large.data());
  give_back_pinned(again);
  give_back_pinned(larger);
}

} // namespace
} // namespace orthant::runtime
