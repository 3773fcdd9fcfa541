// SPDX-License-Identifier: Apache-2.0
//
// orthant evaluate: losses and accuracies of trained weights, and their predictions.

#include "cli/subcommands.hpp"

namespace orthant::cli {
namespace {

struct EvaluateOptions {
  std::string graph;
  std::string weights;
  std::string predictions;
  std::string grid = "auto";
};

int run(EvaluateOptions const& options, Context&) {
  if (options.graph.empty()) runtime::throw_user("evaluate: name the store with --graph graph.h5");
  if (options.weights.empty()) runtime::throw_user("evaluate: name the weights with --weights FILE.h5");
  refuse_unbuilt("orthant evaluate");
}

} // namespace

std::unique_ptr<Command> make_evaluate() {
  auto command = std::make_unique<Command>("evaluate", "Evaluate trained weights on a graph");
  auto const options = std::make_shared<EvaluateOptions>();
  command->option("--graph", options->graph, "Store to evaluate on");
  command->option("--weights", options->weights, "Weights that train --save-weights wrote");
  command->option("--predictions", options->predictions, "Write each vertex's class to this file");
  command->option("--grid", options->grid, "Ranks along data, X, Y and Z as DxXxYxZ, or auto");
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
