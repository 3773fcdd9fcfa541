// SPDX-License-Identifier: Apache-2.0
//
// Emulated machines: every call of a real grid takes what the prediction says of the call in a list, exactly.
#include "pmm/cost/machine.hpp"

#include "pmm/cost/machine_file.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/comm/collectives.hpp"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

namespace orthant::testing {
namespace {

using pmm::Axis;
using pmm::AxisSet;
using runtime::Operation;

constexpr auto text = R"(name = "two_per_node"
ranks_per_node = 2
[memory]
bytes_per_second = 1e12
source = "test"
[dense_products]
fp32 = 1e13
of_16_bits = 1e14
source = "test"
[sparse_products]
per_nonzero = [[4, 4e-10]]
source = "test"
[launch]
seconds = 0
source = "test"
[collectives]
call_seconds = 0.5
step_seconds = 0.25
inside = [[1, 2, 1024]]
bytes_per_second_between_nodes = 256
source = "test"
[emulation]
seconds_per_processor_second = 0
source = "test: ranks compute in no time"
)";

TEST(EmulatedMachine, TakesThePredictedSecondsOfEveryCall) {
  auto const instruments = std::make_shared<runtime::Instruments>();
  runtime::Communicator const world(MPI_COMM_WORLD, "world", instruments);
  auto const machine = pmm::parse_machine(text, "test.toml");
  instruments->clock.emulate(pmm::emulation_of(machine, "test.toml", world.size()));
  auto const size = static_cast<std::size_t>(world.size());
  std::vector<float> part(16, 1);
  std::vector<float> whole(16 * size, 1);
  for (int data = 1; data <= world.size(); ++data) {
    if (world.size() % data != 0) continue;
    for (auto const& shape : pmm::all_shapes(world.size(), data)) {
      pmm::ProcessGrid const grid(world, shape);
      for (auto const axes : {AxisSet{Axis::x}, AxisSet{Axis::y}, AxisSet{Axis::z}, AxisSet{Axis::data},
                              AxisSet{Axis::x, Axis::z}, AxisSet{Axis::y, Axis::data}, pmm::group_axes}) {
        auto const& comm = grid.over(axes);
        auto const members = static_cast<std::size_t>(comm.size());
        auto const gathered = std::span(whole).first(16 * members);
        for (auto const operation :
             {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter}) {
          runtime::barrier(runtime::host, world); // all clocks are equal
          auto const begin = instruments->clock.virtual_seconds();
          if (operation == Operation::all_reduce) runtime::all_reduce(runtime::host, comm, gathered);
          if (operation == Operation::all_gather) runtime::all_gather(runtime::host, comm, part, gathered);
          if (operation == Operation::reduce_scatter)
            runtime::reduce_scatter(runtime::host, comm, gathered, part);

          pmm::StepPlan step(shape, grid.coordinates(), sizeof(float));
          step.add_call(operation, axes, static_cast<std::int64_t>(64 * members));
          auto predicted = 0.0; // a group of one does nothing
          for (auto const& call : pmm::calls_of(step))
            predicted += pmm::call_seconds(machine, call, world.size());
          // Two clocks of some thousand seconds differ by less than 1e-12 of them from exact ones.
          EXPECT_NEAR(instruments->clock.virtual_seconds() - begin, predicted, 1e-9)
              << shape.to_string() << " " << pmm::name_of(axes) << " " << runtime::name_of(operation);
        }
      }
    }
  }
}

} // namespace
} // namespace orthant::testing
