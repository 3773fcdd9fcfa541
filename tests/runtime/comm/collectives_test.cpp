// SPDX-License-Identifier: Apache-2.0
//
// Every collective on every axis group of every grid, with chunk limits below and above its length; arg-max,
// barrier, and calls that must be refused.
#include "collective_exercises.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/comm/backend.hpp"
#include "runtime/comm/collectives.hpp"
#include "support/axis_groups.hpp"
#include "support/grids.hpp"

#include <array>
#include <cmath>
#include <gmock/gmock.h>
#include <limits>
#include <mpi.h>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;
using ::testing::HasSubstr;

constexpr std::array both_modes{Mode::blocking, Mode::asynchronous};

class AxisGroups : public ::testing::TestWithParam<std::array<int, 4>> {};

TEST_P(AxisGroups, EveryCollectiveEqualsSerial) {
  Communicator const world(MPI_COMM_WORLD, "world");
  world.set_chunk_limit(7); // inherited; a length of 23 is cut

  for (auto const& [comm, identity] : axis_groups(world, GetParam()))
    for (auto const mode : both_modes) {
      exercise_all_types<InVector>(comm, identity, mode, {0, 1, 23});
      Exercises<float, InView>(comm, identity, mode, {23}).all();
    }
}

INSTANTIATE_TEST_SUITE_P(Grids, AxisGroups, ::testing::ValuesIn(grids_4d(world_size())), GridName{});

class ChunkLimit : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(ChunkLimit, LengthsOnBothSidesEqualSerial) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const limit = GetParam();
  world.set_chunk_limit(limit);

  for (auto const mode : both_modes) {
    exercise_all_types<InVector>(world, 5, mode, {limit - 1, limit, limit + 1, 2 * limit + limit / 2});
    exercise_all_types<InView>(world, 5, mode, {limit + 1});
  }
}

INSTANTIATE_TEST_SUITE_P(Elements, ChunkLimit, ::testing::Values(1, 7, 1000));

// Longer than the slots of shared memory, and than pieces that are added in the cache.
TEST(LongLengths, EqualSerial) {
  Communicator const world(MPI_COMM_WORLD, "world");
  Exercises<float, InVector>(world, 5, Mode::blocking, {16'384, 200'001}).all();
  world.set_chunk_limit(3'000);
  Exercises<double, InVector>(world, 5, Mode::blocking, {16'384, 20'001}).all();
}

// As between nodes: MPI's own calls, which a node leaves to shared memory.
TEST(LongLengths, EqualSerialByMpiAlone) {
  Communicator const world(MPI_COMM_WORLD, "world");
  world.use_backend(detail::make_mpi_backend());
  exercise_all_types<InVector>(world, 5, Mode::blocking, {0, 1, 40});
  Exercises<float, InVector>(world, 5, Mode::blocking, {16'384, 200'001}).all();
  for (auto const limit : {1, 7, 3'000}) {
    world.set_chunk_limit(limit);
    exercise_all_types<InVector>(world, 5, Mode::blocking, {6, 23});
  }
  Exercises<double, InVector>(world, 5, Mode::blocking, {16'384, 20'001}).all();
}

TEST(ChunkLimit, IsRefusedOutsideItsRange) {
  Communicator const world(MPI_COMM_WORLD, "world");

  EXPECT_THROW(world.set_chunk_limit(0), Error);
  EXPECT_THROW(world.set_chunk_limit((std::int64_t{1} << 30) + 1), Error);
  EXPECT_EQ(world.chunk_limit(), std::int64_t{1} << 30);
}

TEST(Collectives, WithoutChunkLimitEqualSerial) {
  Communicator const world(MPI_COMM_WORLD, "world");

  for (auto const mode : both_modes) {
    exercise_all_types<InVector>(world, 2, mode, {0, 1, 40, 1500});
    exercise_all_types<InView>(world, 2, mode, {40});
  }
}

TEST(Collectives, CarryMatricesSpansAndSingleNumbers) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const size = world.size();
  Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace> matrix("orthant::testing::matrix", 3, 5);
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 5; ++j)
      matrix(i, j) = static_cast<double>(10 * i + j) + world.rank();
  std::array<std::int32_t, 4> numbers{1, 2, 3, 4};

  all_reduce(host, world, matrix);
  all_reduce(host, world, std::span(numbers).first(2), Reduction::max); // a temporary span

  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 5; ++j)
      EXPECT_EQ(matrix(i, j), static_cast<double>(10 * i + j) * size + size * (size - 1) / 2);
  EXPECT_EQ(numbers, (std::array<std::int32_t, 4>{1, 2, 3, 4}));
  EXPECT_EQ(all_reduced(world, std::int64_t{1} << 40), size * (std::int64_t{1} << 40));
  EXPECT_EQ(all_reduced(world, 1.5F * static_cast<float>(world.rank()), Reduction::max),
            1.5F * static_cast<float>(size - 1));
}

template<class T>
void expect_arg_max(Communicator const& comm) {
  auto const nan = std::numeric_limits<T>::quiet_NaN();
  auto const rank = comm.rank();
  std::vector<ValueIndex<T>> data;
  std::vector<ValueIndex<T>> expected;
  auto const add = [&](T value, std::int64_t index, ValueIndex<T> winner) {
    data.push_back({value, index});
    expected.push_back(winner);
  };
  auto const last = comm.size() - 1;
  for (int repeat = 0; repeat < 9; ++repeat) {
    auto const base = static_cast<std::int64_t>(repeat) << 33;
    add(T(rank), base + rank, {T(last), base + last});                  // the largest value
    add(T(-3), base + last - rank, {T(-3), base});                      // ties: the smallest index
    add(rank == last ? T(-7) : nan, base + rank, {T(-7), base + last}); // NaN loses to anything
    add(rank == 0 ? -std::numeric_limits<T>::infinity() : T(-1) - T(rank), base - rank,
        last == 0 ? ValueIndex<T>{-std::numeric_limits<T>::infinity(), base}
                  : ValueIndex<T>{T(-2), base - 1});
  }
  auto const before = comm.ledger()[Operation::all_reduce];

  all_reduce_arg_max(host, comm, data);

  EXPECT_EQ(data, expected);
  auto const counted = comm.size() == 1 ? 0 : static_cast<std::int64_t>(data.size() * sizeof(data[0]));
  EXPECT_EQ(comm.ledger()[Operation::all_reduce].bytes - before.bytes, counted);

  std::vector<ValueIndex<T>> nothing_but_nan{{nan, 100 - rank}};
  all_reduce_arg_max(host, comm, nothing_but_nan);
  EXPECT_TRUE(std::isnan(nothing_but_nan[0].value));
  EXPECT_EQ(nothing_but_nan[0].index, 100 - last);
}

TEST(Collectives, ArgMaxTakesSmallestIndexOfLargestValue) {
  Communicator const world(MPI_COMM_WORLD, "world");

  for (auto const limit : {std::int64_t{1}, std::int64_t{7}, std::int64_t{1000}}) {
    world.set_chunk_limit(limit);
    expect_arg_max<float>(world);
    expect_arg_max<double>(world);
  }
  for (auto const& [comm, identity] : axis_groups(world, grids_4d(world.size()).back())) {
    expect_arg_max<float>(comm);
    expect_arg_max<double>(comm);
  }
}

TEST(Collectives, BarrierHoldsUntilEveryRankHasCome) {
  Communicator const world(MPI_COMM_WORLD, "world");
  std::int64_t* counter = nullptr; // on rank 0: how many ranks have come, over all rounds
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_allocate(world.is_root() ? sizeof(std::int64_t) : 0, sizeof(std::int64_t), MPI_INFO_NULL,
                   world.mpi(), &counter, &window);
  if (world.is_root()) *counter = 0;
  MPI_Win_lock_all(0, window);
  barrier(host, world);

  std::vector<std::int64_t> seen;
  std::int64_t const one = 1;
  for (int round = 0; round < 20; ++round) {
    std::int64_t count = 0;
    MPI_Fetch_and_op(&one, &count, MPI_INT64_T, 0, 0, MPI_SUM, window);
    MPI_Win_flush(0, window);
    barrier(host, world);
    MPI_Fetch_and_op(&one, &count, MPI_INT64_T, 0, 0, MPI_NO_OP, window);
    MPI_Win_flush(0, window);
    seen.push_back(count);
    barrier(host, world);
  }
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);

  for (std::size_t round = 0; round < seen.size(); ++round)
    EXPECT_EQ(seen[round], static_cast<std::int64_t>(round + 1) * world.size());
}

template<class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (Error const& error) {
    return error.what();
  }
  return "no error";
}

/// Every rank finds the mistake by itself, so nobody waits, nothing is counted and the group stays usable.
void expect_refusals(Communicator const& comm) {
  using Lengths = std::vector<std::int64_t>;
  auto const size = static_cast<std::size_t>(comm.size());
  auto const before = comm.ledger().total();
  std::vector<float> floats(4);
  std::vector<float> part(4);
  std::vector<float> whole(4 * size + 1);
  Lengths const fours(size, 4);

  auto const gather = message_of([&] { all_gather(host, comm, part, whole); });
  EXPECT_THAT(gather, HasSubstr("all_gather"));
  EXPECT_THAT(gather, HasSubstr("collectives_test.cpp")) << "the caller's place, not ours";
  EXPECT_THAT(message_of([&] { static_cast<void>(start_all_gather(host, comm, part, whole)); }),
              HasSubstr("all_gather"));
  EXPECT_THAT(message_of([&] { reduce_scatter(host, comm, whole, part); }), HasSubstr("reduce_scatter"));
  EXPECT_THAT(message_of([&] { all_to_all(host, comm, whole, floats); }), HasSubstr("all_to_all"));
  if (size > 1) {
    EXPECT_THAT(message_of([&] {
                  std::vector<float> out(whole.size());
                  all_to_all(host, comm, whole, out);
                }),
                HasSubstr("all_to_all")); // no equal parts
  }

  // counts: a wrong sum, too many, this rank's own part, a negative one
  whole.resize(4 * size);
  std::vector<float> short_part(3);
  EXPECT_THAT(message_of([&] { all_gatherv(host, comm, part, whole, Lengths(size, 5)); }),
              HasSubstr("all_gather"));
  EXPECT_THAT(message_of([&] {
                auto counts = fours;
                counts.push_back(0);
                all_gatherv(host, comm, part, whole, counts);
              }),
              HasSubstr("all_gather"));
  EXPECT_THAT(message_of([&] { all_gatherv(host, comm, short_part, whole, fours); }),
              HasSubstr("all_gather"));
  EXPECT_THAT(message_of([&] { reduce_scatterv(host, comm, whole, short_part, fours); }),
              HasSubstr("reduce_scatter"));
  if (size > 1) {
    auto counts = fours;
    auto const other = comm.rank() == 0 ? std::size_t{1} : std::size_t{0};
    counts[other] = -1;
    std::vector<float> buffer(4 * (size - 1) - 1);
    EXPECT_THAT(message_of([&] { all_gatherv(host, comm, part, buffer, counts); }), HasSubstr("all_gather"));
    EXPECT_THAT(message_of([&] {
                  std::vector<float> out(4 * size);
                  all_to_allv(host, comm, buffer, counts, out, fours);
                }),
                HasSubstr("all_to_all"));
  }
  EXPECT_THAT(message_of([&] { all_to_allv(host, comm, whole, fours, floats, Lengths(size, 5)); }),
              HasSubstr("all_to_all"));
  EXPECT_THAT(message_of([&] { all_to_allv(host, comm, whole, fours, floats, Lengths{}); }),
              HasSubstr("all_to_all"));

  for (auto const peer : {-1, comm.size(), 1 << 30}) {
    EXPECT_THAT(message_of([&] { broadcast(host, comm, floats, peer); }), HasSubstr("broadcast"));
    EXPECT_THAT(message_of([&] { send(host, comm, floats, peer); }), HasSubstr("send"));
    EXPECT_THAT(message_of([&] { receive(host, comm, floats, peer); }), HasSubstr("receive"));
  }
  EXPECT_THAT(message_of([&] { send(host, comm, floats, comm.rank()); }), HasSubstr("send"));
  EXPECT_THAT(message_of([&] { receive(host, comm, floats, comm.rank()); }), HasSubstr("receive"));
  auto const next = (comm.rank() + 1) % comm.size();
  for (auto const tag : {-1, 32'001})
    EXPECT_THAT(message_of([&] { static_cast<void>(start_send(host, comm, floats, next, tag)); }),
                HasSubstr("send"));

  for (auto const wire : {Wire::bf16, Wire::fp16}) {
    std::vector<std::int32_t> integers(4);
    std::vector<double> doubles(4);
    std::vector<double> all_doubles(4 * size);
    EXPECT_THAT(message_of([&] { all_reduce(host, comm, integers, Reduction::sum, wire); }),
                HasSubstr("all_reduce"));
    EXPECT_THAT(message_of([&] { all_reduce(host, comm, doubles, Reduction::sum, wire); }),
                HasSubstr("all_reduce"));
    EXPECT_THAT(message_of([&] { all_reduce(host, comm, floats, Reduction::max, wire); }),
                HasSubstr("all_reduce"));
    EXPECT_THAT(message_of([&] { all_gather(host, comm, doubles, all_doubles, wire); }),
                HasSubstr("all_gather"));
    EXPECT_THAT(message_of([&] { reduce_scatter(host, comm, whole, part, Reduction::min, wire); }),
                HasSubstr("reduce_scatter"));
  }

  std::vector<ValueIndex<float>> pairs(2);
  EXPECT_THAT(message_of([&] { all_reduce(host, comm, pairs, Reduction::sum); }), HasSubstr("all_reduce"));
  EXPECT_THAT(message_of([&] { broadcast(host, comm, pairs, 0); }), HasSubstr("broadcast"));

  std::vector<std::byte> bytes(3);
  EXPECT_THAT(message_of([&] { all_reduce(host, comm, bytes); }), HasSubstr("bytes have no sum"));
  EXPECT_THAT(message_of([&] { exclusive_scan(comm, bytes); }), HasSubstr("bytes have no sum"));

  Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> matrix("orthant::testing::matrix", 4, 4);
  auto const column = Kokkos::subview(matrix, Kokkos::ALL, 1);
  EXPECT_THROW(all_reduce(host, comm, column), Error) << "not contiguous";

  EXPECT_EQ(comm.ledger().total().calls, before.calls);
  EXPECT_EQ(comm.ledger().total().bytes, before.bytes);
  EXPECT_EQ(all_reduced(comm, 1), comm.size());
}

TEST(Collectives, RefuseBadCallsAndNameTheOperation) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const alone = world.split(world.rank(), 0, "alone");

  expect_refusals(world);
  expect_refusals(alone);
}

TEST(Collectives, GatherBytesOfUnequalParts) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const size = static_cast<std::size_t>(world.size());
  std::vector<std::int64_t> counts(size);
  std::vector<std::byte> expected;
  for (std::size_t rank = 0; rank < size; ++rank) {
    counts[rank] = static_cast<std::int64_t>(2 * rank + 1);
    expected.resize(expected.size() + 2 * rank + 1, static_cast<std::byte>(200 + rank));
  }
  auto const rank = static_cast<std::size_t>(world.rank());
  std::vector<std::byte> const part(2 * rank + 1, static_cast<std::byte>(200 + rank));
  std::vector<std::byte> whole(expected.size());
  world.ledger().clear();

  auto request = start_all_gatherv(host, world, part, whole, counts);
  request.wait();

  EXPECT_EQ(whole, expected);
  EXPECT_EQ(world.ledger().total().bytes, size == 1 ? 0 : std::ssize(expected));
}

/// Rank s sends r + 1 numbers 100 s + r to rank r.
TEST(Collectives, AllToAllLeavesWhatARankDoesNotSendToItself) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const size = static_cast<std::size_t>(world.size());
  auto const rank = static_cast<std::size_t>(world.rank());
  for (auto const mode : both_modes) {
    std::vector<float> in;
    std::vector<float> expected;
    std::vector<std::int64_t> send_counts(size);
    std::vector<std::int64_t> const receive_counts(size, world.rank() + 1);
    for (std::size_t r = 0; r < size; ++r) {
      if (r != rank) in.insert(in.end(), r + 1, static_cast<float>(100 * rank + r));
      send_counts[r] = r == rank ? 0 : static_cast<std::int64_t>(r) + 1;
      expected.insert(expected.end(), rank + 1, r == rank ? -1.0F : static_cast<float>(100 * r + rank));
    }
    std::vector<float> out(expected.size(), -1.0F);
    auto const before = world.ledger()[Operation::all_to_all].bytes;
    if (mode == Mode::blocking)
      all_to_allv(host, world, in, send_counts, out, receive_counts);
    else
      start_all_to_allv(host, world, in, send_counts, out, receive_counts).wait();
    EXPECT_EQ(out, expected);
    if (size > 1) {
      EXPECT_EQ(world.ledger()[Operation::all_to_all].bytes - before,
                static_cast<std::int64_t>(in.size() * sizeof(float)));
      EXPECT_THAT(
          message_of([&] { all_to_allv(host, world, in, send_counts, out, receive_counts, Wire::bf16); }),
          HasSubstr("all_to_all")); // would decode what was never sent
    }
  }
}

} // namespace
} // namespace orthant::testing
