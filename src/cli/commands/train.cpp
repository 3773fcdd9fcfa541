// SPDX-License-Identifier: Apache-2.0
//
// orthant train: full-graph or mini-batch training of a graph neural network.

#include "cli/commands/subcommands.hpp"
#include "cli/training/checkpoints.hpp"
#include "cli/training/effective_options.hpp"
#include "cli/training/train_full.hpp"
#include "cli/training/train_minibatch.hpp"
#include "cli/training/train_options.hpp"

namespace orthant::cli {
namespace {

int run(TrainOptions const& options, Context& context) {
  require_effective_options(context, options);
  return options.mode == "minibatch" ? train_minibatch(options, context) : train_full(options, context);
}

} // namespace

std::unique_ptr<Command> make_train() {
  auto command =
      std::make_unique<Command>("train", "Train a graph neural network on the full graph or in mini-batches");
  auto const options = std::make_shared<TrainOptions>();
  add_options(*command, *options);
  command->set_goes_on([options] { return options->resume != "never"; },
                       [options] { return goes_on_from_checkpoint(*options); });
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
