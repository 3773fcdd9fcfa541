// SPDX-License-Identifier: Apache-2.0
//
// Steps played on a machine: single collectives against closed forms by hand, and what sums of seconds do not know: ranks
// that wait, and groups that meet on a link.
#include "pmm/simulate/simulated_step.hpp"

#include "pmm/cost/machine_file.hpp"
#include "pmm/cost/step_plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace orthant::testing {
namespace {

using pmm::Algorithm;
using pmm::Axis;
using pmm::Coordinates;
using pmm::GridShape;
using pmm::Machine;
using pmm::StepPlan;
using runtime::Operation;

constexpr double call_seconds = 0.5;
constexpr double step_seconds = 0.25;
constexpr double between_nodes = 40;

Machine machine_of(int ranks_per_node) {
  Machine machine;
  machine.ranks_per_node = ranks_per_node;
  machine.memory.bytes_per_second = 1;
  machine.dense = {1, 1};
  machine.sparse.per_nonzero.points = {{1, 1}};
  machine.collectives = {
      call_seconds, step_seconds, {{{2, 1}, 80}, {{4, 1}, 100}, {{2, 2}, 60}}, between_nodes};
  return machine;
}

struct Case {
  std::string name;
  GridShape shape; // 16 ranks on four nodes of four
  Axis axis;
  Operation operation;
  std::int64_t bytes;
  Algorithm algorithm;
  int num_rounds;
  double transfer; // seconds, by hand
};

/// B bytes; 40 bytes per second leave and enter each node.
std::vector<Case> cases() {
  constexpr double b = 4800;
  auto const all_to_all = [] { // 8 members on two nodes; 100 bytes to each other one
    auto seconds = 0.0;
    for (int k = 1; k < 8; ++k)
      seconds += std::max(k == 4 ? 0.0 : 100 / 100.0, std::min(k, 8 - k) * 100 / 40.0);
    return seconds;
  };
  return {
      {"ring, a member per node, four groups",
       {1, 4, 4, 1},
       Axis::x,
       Operation::all_reduce,
       4800,
       Algorithm::ring,
       6,
       6 * b / 4 / 10},
      {"ring over all",
       {1, 1, 16, 1},
       Axis::y,
       Operation::all_reduce,
       4800,
       Algorithm::ring,
       30,
       30 * b / 16 / 40},
      {"ring, two members per node, two groups",
       {1, 8, 2, 1},
       Axis::x,
       Operation::all_reduce,
       4800,
       Algorithm::ring,
       14,
       14 * b / 8 / 20},
      {"ring within nodes",
       {1, 4, 4, 1},
       Axis::y,
       Operation::all_reduce,
       4800,
       Algorithm::ring,
       6,
       6 * b / 4 / 100},
      {"gather", {1, 4, 4, 1}, Axis::x, Operation::all_gather, 4800, Algorithm::ring, 3, 3 * b / 4 / 10},
      {"halving between nodes",
       {1, 4, 4, 1},
       Axis::x,
       Operation::all_reduce,
       4800,
       Algorithm::recursive,
       4,
       2 * (b / 2 + b / 4) / 10},
      {"halving over all",
       {1, 1, 16, 1},
       Axis::y,
       Operation::all_reduce,
       4800,
       Algorithm::recursive,
       8,
       2 * ((b / 2 + b / 4) / 10 + (b / 8 + b / 16) / 100)},
      {"halving of a scatter",
       {1, 1, 16, 1},
       Axis::y,
       Operation::reduce_scatter,
       4800,
       Algorithm::recursive,
       4,
       (b / 2 + b / 4) / 10 + (b / 8 + b / 16) / 100},
      {"two levels",
       {1, 1, 16, 1},
       Axis::y,
       Operation::all_reduce,
       4800,
       Algorithm::two_level,
       10,
       6 * b / 4 / 100 + 2 * (b / 8 + b / 16) / 10},
      {"pairs", {1, 1, 8, 2}, Axis::y, Operation::all_to_all, 700, Algorithm::library, 7, all_to_all()},
      {"tree", {1, 4, 4, 1}, Axis::x, Operation::broadcast, 400, Algorithm::library, 2, 2 * 400 / 10.0},
      {"tree of nothing", {1, 4, 4, 1}, Axis::x, Operation::barrier, 0, Algorithm::library, 2, 0},
  };
}

TEST(SimulatedStep, SingleCollectivesTakeTheirClosedForms) {
  auto const machine = machine_of(4);
  for (auto const& of : cases()) {
    auto const list_of = [&](Coordinates const& coordinates) {
      StepPlan step(of.shape, coordinates, sizeof(float));
      step.add_call(of.operation, of.axis, of.bytes);
      return step;
    };
    auto const expected = call_seconds + of.num_rounds * step_seconds + of.transfer;
    auto const call = pmm::calls_of(list_of({})).front();
    EXPECT_NEAR(pmm::seconds_alone(machine, call, of.algorithm, 16), expected, 1e-9) << of.name;
    auto chosen = machine;
    chosen.collectives.algorithms.everywhere = of.algorithm;
    auto const seconds = pmm::simulate_step(of.shape, list_of, chosen);
    EXPECT_NEAR(seconds.total, expected, 0.01 * expected) << of.name;
    EXPECT_NEAR(seconds.calls, expected, 0.01 * expected) << of.name;
    EXPECT_EQ(seconds.waiting, 0) << of.name;

    auto const fastest = pmm::fastest_algorithm(machine, call, 16);
    EXPECT_LE(pmm::seconds_alone(machine, call, fastest, 16), expected * (1 + 1e-9)) << of.name;
    EXPECT_LE(pmm::simulate_step(of.shape, list_of, machine).total, 1.01 * expected) << of.name;
  }
}

/// Computes one second, and gathers along an axis.
StepPlan second_and_gather(GridShape const& shape, Coordinates const& coordinates, Axis axis,
                           std::int64_t bytes) {
  StepPlan step(shape, coordinates, sizeof(float));
  step.add_pass({"second", 1, 0});
  step.add_call(Operation::all_gather, axis, bytes);
  return step;
}

TEST(SimulatedStep, RanksWaitForAStraggler) {
  GridShape const shape{1, 4, 1, 1};
  auto const machine = machine_of(4);
  pmm::SimulationSettings settings;
  settings.stragglers = {{2, 3.0}};
  std::vector<double> ends(4, 0);
  settings.watch = [&](pmm::SimulatedStretch const& stretch) {
    ends[static_cast<std::size_t>(stretch.rank)] = stretch.end;
    EXPECT_EQ(stretch.name, stretch.axis.empty() ? "compute" : "all_gather");
  };
  auto const list_of = [&](Coordinates const& at) { return second_and_gather(shape, at, Axis::x, 400); };

  auto const seconds = pmm::simulate_step(shape, list_of, machine, settings);

  auto const gather = call_seconds + 2 * step_seconds + (200 + 100) / 100.0; // halving
  EXPECT_NEAR(seconds.total, 3 + gather, 1e-12);
  EXPECT_NEAR(seconds.computing, (3 + 3 * 1) / 4.0, 1e-12);
  EXPECT_NEAR(seconds.waiting, 3 * 2 / 4.0, 1e-12);
  EXPECT_NEAR(seconds.calls, gather, 1e-12);
  EXPECT_EQ(ends, std::vector<double>(4, seconds.total));
}

TEST(SimulatedStep, GroupsMeetOnALink) {
  // Two nodes of two ranks: the groups {0, 2} and {1, 3} send 40 bytes each way. The second begins half a second later. The
  // first has sent 20 by then and the rest at half the speed; then the second has the link for its last 20.
  GridShape const shape{1, 2, 2, 1};
  auto machine = machine_of(2);
  machine.collectives.call_seconds = machine.collectives.step_seconds = 0;
  pmm::SimulationSettings settings;
  settings.stragglers = {{1, 1.5}};
  std::vector<double> ends(4, 0);
  settings.watch = [&](pmm::SimulatedStretch const& stretch) {
    ends[static_cast<std::size_t>(stretch.rank)] = stretch.end;
  };
  auto const list_of = [&](Coordinates const& at) { return second_and_gather(shape, at, Axis::x, 80); };

  auto const seconds = pmm::simulate_step(shape, list_of, machine, settings);

  EXPECT_NEAR(seconds.total, 3, 1e-12);
  EXPECT_NEAR(ends[0], 2.5, 1e-12);
  EXPECT_NEAR(ends[1], 3, 1e-12);
  EXPECT_NEAR(ends[2], 2.5, 1e-12);
}

TEST(SimulatedStep, FoldedRanksAreTheSame) {
  GridShape const shape{1, 4, 4, 2};
  auto const machine = machine_of(4);
  auto const list_of = [&](Coordinates const& at) {
    auto step = second_and_gather(shape, at, Axis::x, 4800);
    step.add_call(Operation::all_reduce, Axis::y, 640);
    step.add_pass({"seconds", 2, 0});
    step.add_call(Operation::reduce_scatter, Axis::z, 1280);
    return step;
  };
  pmm::SimulationSettings folded;
  folded.folds_ranks = true;
  auto const of_all = pmm::simulate_step(shape, list_of, machine);
  auto const of_one = pmm::simulate_step(shape, list_of, machine, folded);
  EXPECT_EQ(of_all.total, of_one.total);
  EXPECT_EQ(of_all.waiting, 0);
  auto sum = 0.0;
  auto const list = list_of({});
  for (auto const& operation : list.operations()) {
    auto const* const call = std::get_if<pmm::PlannedCall>(&operation);
    sum += call == nullptr
               ? pmm::seconds_of(operation, list, machine)
               : pmm::seconds_alone(machine, *call, pmm::fastest_algorithm(machine, *call, 32), 32);
  }
  EXPECT_NEAR(of_all.total, sum, 0.01 * sum);
}

// A machine of today, 16 to 256 ranks, 1 KiB to 64 MiB: by how much an algorithm is faster than the ring of all ranks, by messages that
// share links, and as call_seconds() predicts it.
TEST(SimulatedStep, AlgorithmsAreFasterThanTheRingAsPredicted) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  auto machine = pmm::read_machine(world, "perlmutter");
  for (int const num_ranks : {16, 64, 256})
    for (auto const operation : {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter})
      for (std::int64_t bytes = 1 << 10; bytes <= 1 << 26; bytes *= 16) {
        GridShape const shape{1, 1, num_ranks, 1};
        auto const list_of = [&](Coordinates const& coordinates) {
          StepPlan step(shape, coordinates, sizeof(float));
          step.add_call(operation, Axis::y, bytes);
          return step;
        };
        auto const call = pmm::calls_of(list_of({})).front();
        auto const seconds = [&](Algorithm algorithm) {
          machine.collectives.algorithms.everywhere = algorithm;
          return std::pair(pmm::simulate_step(shape, list_of, machine).total,
                           pmm::call_seconds(machine, call, num_ranks));
        };
        auto const [ring, predicted_ring] = seconds(Algorithm::ring);
        for (auto const algorithm : {Algorithm::recursive, Algorithm::two_level, Algorithm::nvrar}) {
          if (algorithm == Algorithm::nvrar && operation != Operation::all_reduce) continue;
          auto const [simulated, predicted] = seconds(algorithm);
          EXPECT_NEAR(ring / simulated / (predicted_ring / predicted), 1, 0.15)
              << num_ranks << " ranks, " << runtime::name_of(operation) << " of " << bytes << " bytes by "
              << runtime::name_of(algorithm);
          auto const is_short = bytes <= 1 << 16;
          EXPECT_GT(ring / simulated, is_short ? 1.5 : 0) << "the latency of a ring";
          if (std::getenv("ORTHANT_TEST_TABLE") != nullptr)
            std::printf("%d %s %lld %s ring %.6g s, %.6g s, %.3g times; predicted %.3g times\n", num_ranks,
                        std::string(runtime::name_of(operation)).c_str(), static_cast<long long>(bytes),
                        std::string(runtime::name_of(algorithm)).c_str(), ring, simulated, ring / simulated,
                        predicted_ring / predicted);
        }
      }
}

// Without a table, the model of the machine chooses. On virtual clocks its choice is within 5 % of the best one, the library's included.
// Message by message, too, unless it is the library's: the equation of a library's seconds is that of no list of messages, and what the
// simulation takes for a library is up to 10 % slower than the best list.
TEST(SimulatedStep, TheModelsChoiceIsNearlyTheBest) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  auto const machine = pmm::read_machine(world, "perlmutter");
  constexpr std::array all{Algorithm::ring, Algorithm::recursive, Algorithm::two_level, Algorithm::doubling,
                           Algorithm::nvrar};
  auto const is_fine = std::getenv("ORTHANT_TEST_TABLE") != nullptr;
  for (int const num_ranks : is_fine ? std::vector{12, 16, 64, 256} : std::vector{12, 64})
    for (auto const operation : {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter})
      for (std::int64_t bytes = 4; bytes <= 1 << 26; bytes *= is_fine ? 2 : 4) {
        GridShape const shape{1, 1, num_ranks, 1};
        auto const seconds = [&](runtime::AlgorithmChoice const& choice) {
          auto chosen = machine;
          chosen.collectives.algorithms = choice;
          return pmm::simulate_step(
                     shape,
                     [&](Coordinates const& coordinates) {
                       StepPlan step(shape, coordinates, sizeof(float));
                       step.add_call(operation, Axis::y, bytes);
                       return step;
                     },
                     chosen)
              .total;
        };
        auto best = Algorithm::ring;
        auto least = std::numeric_limits<double>::infinity();
        for (auto const algorithm : all) {
          if (!runtime::is_possible(operation, algorithm, {num_ranks / 4, 4})) continue;
          auto const of_algorithm = seconds({.everywhere = algorithm});
          if (of_algorithm >= least) continue;
          least = of_algorithm;
          best = algorithm;
        }
        runtime::AlgorithmChoice choice;
        choice.predicted = pmm::predicted_algorithms(machine);
        auto const found = seconds(choice);
        auto const chosen_algorithm = choice.of(operation, "y", {num_ranks / 4, 4}, bytes);
        auto const name = runtime::name_of(chosen_algorithm);
        auto const call = [&](runtime::AlgorithmChoice const& of) {
          auto chosen = machine;
          chosen.collectives.algorithms = of;
          StepPlan step(shape, {}, sizeof(float));
          step.add_call(operation, Axis::y, bytes);
          return pmm::call_seconds(chosen, pmm::calls_of(step).front(), num_ranks);
        };
        auto least_emulated = call({}); // on virtual clocks, where the library is one of the candidates
        for (auto const algorithm : all)
          if (runtime::is_possible(operation, algorithm, {num_ranks / 4, 4}))
            least_emulated = std::min(least_emulated, call({.everywhere = algorithm}));
        EXPECT_LE(call(choice), 1.05 * least_emulated)
            << num_ranks << " ranks, " << runtime::name_of(operation) << " of " << bytes << " bytes";
        EXPECT_LE(found, (chosen_algorithm == Algorithm::library ? 1.1 : 1.05) * least)
            << num_ranks << " ranks, " << runtime::name_of(operation) << " of " << bytes << " bytes by "
            << name << " and not by " << runtime::name_of(best);
        if (is_fine)
          std::printf("%d %s %lld auto %s %.6g s, best %s %.6g s, %.3f\n", num_ranks,
                      std::string(runtime::name_of(operation)).c_str(), static_cast<long long>(bytes),
                      std::string(name).c_str(), found, std::string(runtime::name_of(best)).c_str(), least,
                      found / least);
      }
}

TEST(PredictedAlgorithms, LeaveToTheLibraryWhatTheModelDoesNotKnow) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  auto const choose = pmm::predicted_algorithms(pmm::read_machine(world, "perlmutter"));
  EXPECT_EQ(choose(Operation::all_to_all, {16, 4}, 0), Algorithm::library) << "no size";
  EXPECT_EQ(choose(Operation::all_reduce, {16, 3}, 1024), Algorithm::library) << "nodes have 4 ranks";
  EXPECT_NE(choose(Operation::all_reduce, {16, 4}, 1024), Algorithm::library);
  runtime::AlgorithmChoice choice;
  choice.predicted = choose;
  EXPECT_EQ(choice.of(Operation::all_reduce, "x", {1, 4}, 1024), Algorithm::library) << "within a node";
  EXPECT_FALSE(choice.is_library("x"));
  choice.of_axis["x"] = Algorithm::ring;
  EXPECT_EQ(choice.of(Operation::all_reduce, "x", {16, 4}, 1024), Algorithm::ring) << "the user's word";
}

} // namespace
} // namespace orthant::testing
