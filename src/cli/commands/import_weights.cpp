// SPDX-License-Identifier: Apache-2.0
//
// orthant import-weights: writes a state dict of PyTorch, in safetensors, as a weights file.

#include "cli/commands/subcommands.hpp"
#include "models/gnn/files/state_dict.hpp"

namespace orthant::cli {
namespace {

struct ImportWeightsOptions {
  std::string tensors;
  std::string output;
};

int run(ImportWeightsOptions const& options, Context& context) {
  if (options.tensors.empty())
    runtime::throw_user("import-weights: name the file: orthant import-weights w.safetensors -o w.h5");
  if (options.output.empty()) runtime::throw_user("import-weights: name the file to write with -o FILE");
  models::import_weights(context.world(), options.tensors, options.output);
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_import_weights() {
  auto command = std::make_unique<Command>(
      "import-weights", "Make weights of safetensors with the names of PyTorch Geometric's GCN");
  auto const options = std::make_shared<ImportWeightsOptions>();
  command->input("tensors", options->tensors, "File to read (.safetensors)");
  command->output("-o,--output", options->output, "Weights to write, for train --init-from and evaluate");
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
