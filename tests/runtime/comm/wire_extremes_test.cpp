// SPDX-License-Identifier: Apache-2.0
//
// Single cases of the 16-bit wire: ties, infinity and NaN, overflow of fp16, Views, and several sums at once.
#include "runtime/arrays/views.hpp"
#include "runtime/comm/collectives.hpp"

#include <cmath>
#include <gmock/gmock.h>
#include <limits>
#include <span>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;

TEST(Wire, RoundsOnce) {
  Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "a group of one rounds nothing";
  // 1 + 2^-9 is no bf16 and goes to 1; summed before rounding, P of them would be P + P 2^-9.
  std::vector<float> data{1.0F + 0x1p-9F, 1.0F + 0x1p-8F, 1.0F + 3 * 0x1p-8F};

  all_reduce(host, world, data, Reduction::sum, Wire::bf16);

  auto const size = static_cast<float>(world.size());
  EXPECT_EQ(data[0], size);
  EXPECT_EQ(data[1], size); // a tie, to the even 1
  EXPECT_EQ(data[2], decode(Wire::bf16, encode(Wire::bf16, size * (1.0F + 4 * 0x1p-8F)))); // a tie, up
}

TEST(Wire, CarriesViews) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const size = world.size();
  Vector<float> data("orthant::testing::data", 300);
  Kokkos::deep_copy(data, 0.5F);

  all_reduce(DefaultExec{}, world, data, Reduction::sum, Wire::fp16);

  auto const mirror = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, data);
  for (std::size_t i = 0; i < 300; ++i)
    ASSERT_EQ(mirror(i), 0.5F * static_cast<float>(size));
}

TEST(Wire, SeveralSumsMayBeOpenAtOnce) {
  Communicator const world(MPI_COMM_WORLD, "world");
  world.set_chunk_limit(50);
  std::vector<std::vector<float>> data;
  std::vector<Request> requests;
  for (int k = 0; k < 4; ++k)
    data.emplace_back(100 + k, static_cast<float>(k + world.rank()));
  for (auto& buffer : data)
    requests.push_back(start_all_reduce(host, world, buffer, Reduction::sum, Wire::bf16));

  // The same order on all ranks, as collectives.hpp asks of sums on the wire.
  for (auto const k : {2U, 0U, 3U, 1U})
    requests[k].wait();

  auto const size = world.size();
  for (int k = 0; k < 4; ++k)
    EXPECT_EQ(data[static_cast<std::size_t>(k)],
              std::vector<float>(static_cast<std::size_t>(100 + k),
                                 static_cast<float>(k * size + size * (size - 1) / 2)));
}

TEST(Wire, InfinityAndNanArrive) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const infinity = std::numeric_limits<float>::infinity();
  auto const is_last = world.rank() == world.size() - 1;
  for (auto const wire : {Wire::bf16, Wire::fp16}) {
    std::vector<float> data{is_last ? infinity : 1.0F, is_last ? -infinity : 1.0F,
                            is_last ? std::numeric_limits<float>::quiet_NaN() : 1.0F,
                            world.rank() % 2 == 0 ? infinity : -infinity};

    all_reduce(host, world, data, Reduction::sum, wire);

    EXPECT_EQ(data[0], infinity);
    EXPECT_EQ(data[1], -infinity);
    EXPECT_TRUE(std::isnan(data[2]));
    EXPECT_EQ(std::isnan(data[3]), world.size() > 1);
  }
}

template<class Call>
void expect_overflow(Call&& call) {
  try {
    call();
    ADD_FAILURE() << "no overflow was noticed";
  } catch (Error const& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("fp16"));
    EXPECT_EQ(error.exit_status(), exit_internal);
  }
}

TEST(Wire, Fp16OverflowIsAnError) {
  Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "a group of one encodes nothing";
  // As long as the group is large: every rank owns a part and meets the overflow itself.
  auto const size = static_cast<std::size_t>(world.size());
  std::vector<float> addends(size, -70'000.0F);
  std::vector<float> fits(size, 40'000.0F); // each fits, no two of them together
  std::vector<float> one(1);
  std::vector<float> gathered(size * size);

  expect_overflow([&] { all_reduce(host, world, addends, Reduction::sum, Wire::fp16); });
  expect_overflow([&] { reduce_scatter(host, world, addends, one, Reduction::sum, Wire::fp16); });
  expect_overflow([&] { all_gather(host, world, addends, gathered, Wire::fp16); });
  expect_overflow([&] { all_to_all(host, world, addends, std::span(gathered).first(size), Wire::fp16); });
  expect_overflow([&] { all_reduce(host, world, std::span(fits), Reduction::sum, Wire::fp16); });
  expect_overflow([&] { reduce_scatter(host, world, fits, one, Reduction::sum, Wire::fp16); });
  auto request = start_all_reduce(host, world, fits, Reduction::sum, Wire::fp16);
  expect_overflow([&] { request.wait(); });
  EXPECT_TRUE(request.test());
  request.wait(); // it is over
  EXPECT_NO_THROW(all_reduce(host, world, fits, Reduction::sum, Wire::bf16));

  EXPECT_EQ(all_reduced(world, 1), world.size()) << "the group is usable after";
}

} // namespace
} // namespace orthant::testing
