// SPDX-License-Identifier: Apache-2.0
//
// orthant export-weights: writes a weights file as a state dict of PyTorch in safetensors, or as a model folder of Hugging Face.

#include "cli/commands/subcommands.hpp"
#include "cli/lm/lm_files.hpp"
#include "models/gnn/files/state_dict.hpp"
#include "models/lm/files/hf_weights.hpp"
#include "models/lm/files/peft_adapters.hpp"

namespace orthant::cli {
namespace {

struct ExportWeightsOptions {
  std::string weights;
  std::string output;
  std::string format = "pyg";
};

int run(ExportWeightsOptions const& options, Context& context) {
  if (options.weights.empty())
    runtime::throw_user("export-weights: name the weights: orthant export-weights w.h5 -o w.safetensors");
  if (options.output.empty()) runtime::throw_user("export-weights: name the file to write with -o FILE");
  if (options.format == "hf" || options.format == "peft") {
    auto const model = read_model(context.world(), options.weights);
    (options.format == "hf" ? models::export_hf_weights : models::export_peft_adapters)(
        context.world(), options.weights, model.settings, options.output);
    return runtime::exit_done;
  }
  if (!options.output.ends_with(".safetensors"))
    runtime::throw_user("export-weights writes .safetensors files, and '{}' does not end with that",
                        options.output);
  models::export_weights(context.world(), options.weights, options.output);
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_export_weights() {
  auto command =
      std::make_unique<Command>("export-weights", "Write weights as safetensors of PyTorch Geometric, or as "
                                                  "a folder with a language model of Hugging Face");
  auto const options = std::make_shared<ExportWeightsOptions>();
  command->input("weights", options->weights, "Weights that train or train-lm --save-weights wrote");
  command->output("-o,--output", options->output,
                  "File (.safetensors) or, with --format hf and peft, folder to write");
  command->option(
      "--format", options->format,
      "pyg (names of PyTorch Geometric's layers), hf (config.json and safetensors of a language model, as "
      "transformers reads them) or peft (the adapters of train-lm --lora-rank alone, as PEFT reads them)",
      one_of({"pyg", "hf", "peft"}));
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
