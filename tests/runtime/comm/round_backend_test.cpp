// SPDX-License-Identifier: Apache-2.0
//
// Collectives by lists of rounds: every operation equals its serial computation, as it does with MPI's own; floats have the same bits on all
// ranks; and no order of waits or delay of a rank stops them.
#include "collective_exercises.hpp"
#include "runtime/comm/backend.hpp"
#include "runtime/comm/collectives.hpp"
#include "support/grids.hpp"

#include <chrono>
#include <cstdlib>
#include <deque>
#include <gtest/gtest.h>
#include <random>
#include <thread>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;

/// Node of each rank if nodes have `per_node` ranks each.
std::vector<int> nodes_of(int per_node) {
  std::vector<int> nodes;
  for (int rank = 0; rank < world_size(); ++rank)
    nodes.push_back(rank / per_node);
  return nodes;
}

struct Scheme {
  Algorithm algorithm;
  int per_node;
};

std::vector<Scheme> schemes() {
  std::vector<Scheme> all{{Algorithm::ring, 1}, {Algorithm::recursive, 1}, {Algorithm::doubling, 1}};
  for (int per_node = 2; per_node < world_size(); ++per_node)
    if (world_size() % per_node == 0)
      for (auto const algorithm : {Algorithm::two_level, Algorithm::nvrar})
        all.push_back({algorithm, per_node});
  return all;
}

class ByRounds : public ::testing::TestWithParam<Scheme> {
 protected:
  void SetUp() override {
    world.use_algorithms({GetParam().algorithm, {}, {}}, nodes_of(GetParam().per_node));
    if (world.size() == 1) return; // a group of one asks no backend
    std::vector<float> numbers(1);
    auto const call =
        detail::all_reduce_call(host, numbers, Reduction::sum, Wire::native, std::source_location::current());
    for (auto const mode : {detail::Mode::blocking, detail::Mode::asynchronous})
      ASSERT_TRUE(world.backends(false).front()->takes(call, mode)) << "or MPI would carry out the calls";
  }
  Communicator world{MPI_COMM_WORLD, "world"};
};

TEST_P(ByRounds, EveryCollectiveEqualsSerial) {
  world.set_chunk_limit(7);
  for (auto const mode : {Mode::blocking, Mode::asynchronous})
    exercise_all_types<InVector>(world, 3, mode, {0, 1, 5, 23});
}

TEST_P(ByRounds, LongLengthsEqualSerial) {
  for (auto const mode : {Mode::blocking, Mode::asynchronous})
    Exercises<float, InVector>(world, 3, mode, {world.size() > 8 ? 70'001 : 200'001}).all();
}

TEST_P(ByRounds, GroupsThatAreSplitFollowTheChoice) {
  auto const half = world.split(world.rank() % 2, world.rank(), "half");
  Exercises<double, InVector>(half, 1 + world.rank() % 2, Mode::blocking, {23}).all();
  EXPECT_NE(half.algorithms(), nullptr);
}

TEST_P(ByRounds, FloatsHaveTheSameBitsOnAllRanks) {
  std::mt19937 random(static_cast<unsigned>(world.rank() + 1));
  std::uniform_real_distribution<float> numbers(-1, 1);
  for (auto const count : {std::size_t{1}, std::size_t{1000}}) {
    std::vector<float> sums(count);
    for (auto& number : sums)
      number = numbers(random);
    all_reduce(host, world, sums);
    auto of_root = sums;
    broadcast(host, world, of_root, 0);
    EXPECT_EQ(sums, of_root);
  }
}

// A table that prefers lists for short calls and the library for long ones: encoded calls are accepted by numbers and sent as bytes.
TEST_P(ByRounds, TablesMayChangeBetweenTwoLengths) {
  Communicator const other(MPI_COMM_WORLD, "other");
  AlgorithmChoice choice;
  choice.measurements = {{Operation::all_to_all, {1, world_size()}, 64, Algorithm::two_level}};
  for (auto const operation : {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter}) {
    choice.measurements.push_back({operation, {1, world_size()}, 64, Algorithm::ring});
    choice.measurements.push_back({operation, {1, world_size()}, 4096, Algorithm::library});
  }
  other.use_algorithms(choice, nodes_of(GetParam().per_node));
  for (std::size_t length = 1; length < 4000; length *= 3)
    for (auto const wire : {Wire::native, Wire::bf16}) {
      std::vector<float> sums(length, 1);
      all_reduce(host, other, sums, Reduction::sum, wire);
      EXPECT_EQ(sums, std::vector<float>(length, static_cast<float>(world.size())));
      std::vector<float> gathered(length * static_cast<std::size_t>(world.size()));
      all_gather(host, other, sums, gathered, wire);
      EXPECT_EQ(gathered, std::vector<float>(gathered.size(), static_cast<float>(world.size())));
    }
}

TEST_P(ByRounds, SumsOf16BitsStillMoveAsBytes) {
  for (auto const mode : {Mode::blocking, Mode::asynchronous}) {
    std::vector<float> sums(37, 1);
    if (mode == Mode::blocking)
      all_reduce(host, world, sums, Reduction::sum, Wire::bf16);
    else
      start_all_reduce(host, world, sums, Reduction::sum, Wire::bf16).wait();
    EXPECT_EQ(sums, std::vector<float>(37, static_cast<float>(world.size())));
  }
}

/// Repeats of a test with random delays: ORTHANT_TEST_REPEATS, or a number that takes seconds.
int num_repeats_of_delays() {
  if (auto const* const text = std::getenv("ORTHANT_TEST_REPEATS")) return std::atoi(text);
  return world_size() > 8 ? 4 : world_size() > 4 ? 20 : 50;
}

// Requests in flight on three groups, waited for in another order on each rank, after delays of up to 2 ms.
TEST_P(ByRounds, DelaysAndOrdersOfWaitsStopNothing) {
  auto const half = world.split(world.rank() % 2, world.rank(), "half");
  auto const pair = world.split(world.rank() / 2, world.rank(), "pair");
  std::array<Communicator const*, 3> const groups{&world, &half, &pair};
  std::mt19937 random(static_cast<unsigned>(17 * world.rank() + 5));
  constexpr std::size_t length = 50;
  std::vector<double> const own(length, world.rank() + 1.0);
  for (int repeat = 0; repeat < num_repeats_of_delays(); ++repeat) {
    std::deque<std::vector<double>> results; // of each group: sums, and the gathered vectors of all ranks
    std::vector<Request> requests;
    std::vector<float> encoded(length, static_cast<float>(world.rank() + 1));
    requests.push_back(start_all_reduce(host, world, encoded, Reduction::sum, Wire::bf16));
    for (auto const* group : groups) {
      requests.push_back(start_all_reduce(host, *group, results.emplace_back(own)));
      auto& gathered = results.emplace_back(length * static_cast<std::size_t>(group->size()));
      requests.push_back(start_all_gather(host, *group, own, gathered));
    }
    std::ranges::shuffle(requests, random);
    for (auto& request : requests) {
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      request.wait();
    }
    auto const sum_of_all = static_cast<float>(world.size() * (world.size() + 1) / 2); // exact in bf16
    EXPECT_EQ(encoded, std::vector<float>(length, sum_of_all));
    for (std::size_t i = 0; i < groups.size(); ++i) {
      std::vector<double> gathered;
      for (auto const rank : groups[i]->job_ranks())
        gathered.insert(gathered.end(), length, rank + 1.0);
      double sum = 0;
      for (auto const rank : groups[i]->job_ranks())
        sum += rank + 1;
      EXPECT_EQ(results[2 * i], std::vector<double>(length, sum));
      EXPECT_EQ(results[2 * i + 1], gathered);
    }
  }
}

std::string name_of_scheme(::testing::TestParamInfo<Scheme> const& scheme) {
  auto name = std::string(name_of(scheme.param.algorithm)) + "_" + std::to_string(scheme.param.per_node);
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Schemes, ByRounds, ::testing::ValuesIn(schemes()), name_of_scheme);

} // namespace
} // namespace orthant::testing
