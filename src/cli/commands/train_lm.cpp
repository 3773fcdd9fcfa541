// SPDX-License-Identifier: Apache-2.0
//
// orthant train-lm: trains transformers on the same distributed matrices as graph networks.

#include "cli/commands/subcommands.hpp"
#include "cli/lm/train_lm_run.hpp"
#include "cli/training/checkpoints.hpp"
#include "cli/training/idle_options.hpp"

namespace orthant::cli {

std::unique_ptr<Command> make_train_lm() {
  auto command =
      std::make_unique<Command>("train-lm", "Train a language model (GPT or Llama) on a token file");
  auto const options = std::make_shared<TrainLmOptions>();
  add_options(*command, *options);
  command->set_goes_on([options] { return options->resume != "never"; },
                       [options] { return goes_on_from_checkpoint(*options); });
  command->set_run([options](Context& context) {
    apply_preset(context, *options);
    require_effective_optimizer_options(context, *options);
    require_effective_expert_options(context, *options);
    require_effective_adapter_options(context, *options);
    return train_language_model(*options, context);
  });
  return command;
}

} // namespace orthant::cli
