// SPDX-License-Identifier: Apache-2.0
#include "cli/machine/emulated_machine.hpp"

#include "pmm/cost/machine.hpp"
#include "pmm/cost/machine_file.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/error.hpp"

#include <cstdlib>

namespace orthant::cli {

void emulate_machine(runtime::Environment& environment, runtime::AlgorithmChoice const& algorithms) {
  auto const* const name = std::getenv(emulate_variable);
  if (name == nullptr || *name == '\0') return;
  if constexpr (!pmm::runs_on_host)
    runtime::throw_user("{} works on host processors only: it counts their time", emulate_variable);
  auto const& world = environment.world();
  auto machine = pmm::read_machine(world, name);
  machine.collectives.algorithms = algorithms;
  auto& instruments = *environment.instruments();
  instruments.clock.emulate(pmm::emulation_of(machine, name, world.size()));
  if (!world.is_root()) return;
  auto const num_nodes = (world.size() + machine.ranks_per_node - 1) / machine.ranks_per_node;
  instruments.log.info(
      "all seconds are virtual ({}={}): {} rank{} on {} node{} of {}, {} seconds per second of the "
      "processor; rates of progress and the time left are real",
      emulate_variable, name, world.size(), world.size() == 1 ? "" : "s", num_nodes,
      num_nodes == 1 ? "" : "s", machine.name, machine.seconds_per_processor_second);
}

std::string clock_text(runtime::Communicator const& world) {
  auto const* const machine = world.instruments().clock.machine();
  return machine == nullptr ? std::string() : ", virtual on " + machine->name;
}

} // namespace orthant::cli
