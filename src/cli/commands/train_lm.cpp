// SPDX-License-Identifier: Apache-2.0
//
// orthant train-lm: transformers and mixtures of experts on the same distributed matrices.

#include "cli/commands/subcommands.hpp"

namespace orthant::cli {

std::unique_ptr<Command> make_train_lm() {
  auto command =
      std::make_unique<Command>("train-lm", "Train a transformer or a mixture of experts (not built yet)");
  command->set_run([](Context&) -> int { refuse_unbuilt("orthant train-lm"); });
  return command;
}

} // namespace orthant::cli
