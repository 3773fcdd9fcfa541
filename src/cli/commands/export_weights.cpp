// SPDX-License-Identifier: Apache-2.0
//
// orthant export-weights: writes a weights file as a state dict of PyTorch, in safetensors.

#include "cli/commands/subcommands.hpp"
#include "models/gnn/files/state_dict.hpp"

namespace orthant::cli {
namespace {

struct ExportWeightsOptions {
  std::string weights;
  std::string output;
};

int run(ExportWeightsOptions const& options, Context& context) {
  if (options.weights.empty())
    runtime::throw_user("export-weights: name the weights: orthant export-weights w.h5 -o w.safetensors");
  if (options.output.empty()) runtime::throw_user("export-weights: name the file to write with -o FILE");
  if (!options.output.ends_with(".safetensors"))
    runtime::throw_user("export-weights writes .safetensors files, and '{}' does not end with that",
                        options.output);
  models::export_weights(context.world(), options.weights, options.output);
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_export_weights() {
  auto command = std::make_unique<Command>(
      "export-weights", "Write weights as safetensors, with the names of PyTorch Geometric's GCN");
  auto const options = std::make_shared<ExportWeightsOptions>();
  command->input("weights", options->weights, "Weights that train --save-weights wrote");
  command->output("-o,--output", options->output, "File to write (.safetensors)");
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
