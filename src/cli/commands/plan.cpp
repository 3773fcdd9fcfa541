// SPDX-License-Identifier: Apache-2.0
//
// orthant plan: which grid to use, from a model of computation, communication and memory.

#include "cli/commands/subcommands.hpp"

namespace orthant::cli {

std::unique_ptr<Command> make_plan() {
  auto command = std::make_unique<Command>("plan", "Choose a grid by a cost model (not built yet)");
  command->later("--graph", "Store to plan for");
  command->later("--stats", "Or its size as N,NNZ,D,C");
  command->later("--machine", "Name of a machine, or machine.toml");
  command->later("--ranks", "Number of ranks");
  command->later("--mode", "full or minibatch");
  command->later("--json", "Machine-readable output");
  command->set_needs_device(false);
  command->set_run([](Context&) -> int { refuse_unbuilt("orthant plan"); });
  return command;
}

} // namespace orthant::cli
