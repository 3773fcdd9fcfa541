// SPDX-License-Identifier: Apache-2.0
//
// orthant export-weights: writes a weights file as a state dict of PyTorch in safetensors, or as a model folder of Hugging Face.
#include "cli/commands/subcommands.hpp"
#include "cli/lm/lm_files.hpp"
#include "models/gnn/files/state_dict.hpp"
#include "models/lm/files/hf_weights.hpp"
#include "models/lm/files/peft_adapters.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/text_file.hpp"
#include "tokens/bpe/tokenizer_files.hpp"

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

// orthant import-weights: writes a state dict of PyTorch in safetensors, a model folder of Hugging Face, or a GGUF file as a weights
// file.

namespace {

struct ImportWeightsOptions {
  std::string tensors;
  std::string output;
};

/// The tokenizer.json of a model's folder, or one that is made of its vocab.json and merges.txt; empty if it has neither. Collective.
std::string tokenizer_of(runtime::Communicator const& world, std::filesystem::path const& folder) {
  auto const has = [&](char const* name) { return std::filesystem::exists(folder / name); };
  if (has("tokenizer.json")) return runtime::read_table_file(world, folder / "tokenizer.json", [](auto) {});
  if (has("vocab.json") && has("merges.txt"))
    return tokens::read_tokenizer(world, folder / "vocab.json", {}).json;
  return {};
}

int import_gguf(std::filesystem::path const& input, ImportWeightsOptions const& options, Context& context) {
  auto const& world = context.world();
  auto const model = runtime::together(world, [&] { return std::make_unique<models::GgufModel>(input); });
  models::import_gguf_weights(world, input, *model, options.output, record_of(model->config().settings));
  if (world.is_root() && model->tokenizer().empty())
    context.log().warn(
        "{}: its tokenizer ({}) is not read; give --tokenizer to commands that read or write text",
        options.tensors, model->tokenizer_kind());
  return runtime::exit_done;
}

int run(ImportWeightsOptions const& options, Context& context) {
  if (options.tensors.empty())
    runtime::throw_user("import-weights: name the file: orthant import-weights w.safetensors -o w.h5");
  if (options.output.empty()) runtime::throw_user("import-weights: name the file to write with -o FILE");
  auto const& world = context.world();
  std::filesystem::path const input(options.tensors);
  if (input.extension() == ".gguf") return import_gguf(input, options, context);
  if (!std::filesystem::is_directory(input)) {
    models::import_weights(world, input, options.output);
    return runtime::exit_done;
  }
  auto const config = runtime::together(world, [&] { return models::read_hf_config(input / "config.json"); });
  models::import_hf_weights(world, input, config, options.output, record_of(config.settings),
                            tokenizer_of(world, input));
  if (world.is_root() && !config.note.empty()) context.log().warn("{}", config.note);
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_import_weights() {
  auto command = std::make_unique<Command>(
      "import-weights",
      "Convert safetensors of PyTorch Geometric, or a language model of Hugging Face (a folder) or llama.cpp "
      "(GGUF), to weights");
  auto const options = std::make_shared<ImportWeightsOptions>();
  command->input("tensors", options->tensors,
                 "File to read (.safetensors, .gguf), or a folder with config.json");
  command->output("-o,--output", options->output,
                  "Weights to write, for --init-from and evaluate or evaluate-lm");
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
