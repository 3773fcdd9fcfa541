// SPDX-License-Identifier: Apache-2.0
//
// orthant evaluate: losses and accuracies of trained weights, and their predictions.

#include "cli/commands/subcommands.hpp"
#include "cli/options/gemm_options.hpp"
#include "cli/training/memory_check.hpp"
#include "cli/training/train_full.hpp"
#include "models/core/vertex_loss.hpp"
#include "models/files/gcn_weights.hpp"
#include "models/files/predictions.hpp"
#include "models/training/training_run.hpp"
#include "runtime/files/staged_file.hpp"

#include <cstdio>

namespace orthant::cli {
namespace {

struct EvaluateOptions {
  std::string graph;
  std::string weights;
  std::string predictions;
  std::string grid = "auto";
  std::string feature_norm; // empty: as the weights were trained
  std::string gemm_math = "fp32";
  std::string gemm_table;
  bool force_memory = false;
};

models::GcnSettings model_of(models::WeightsFacts const& weights, EvaluateOptions const& options) {
  auto settings = models::settings_of(weights);
  if (!options.feature_norm.empty()) settings.feature_norm = models::parse_feature_norm(options.feature_norm);
  return settings;
}

void require_fitting_widths(models::WeightsFacts const& weights, graph::GraphStore const& store,
                            std::string const& path) {
  auto const& facts = store.facts();
  if (weights.num_features() != facts.num_features || weights.num_classes() != facts.num_classes)
    runtime::throw_user("{} maps {} features to {} classes, but {} has {} features and {} classes", path,
                        weights.num_features(), weights.num_classes(), store.name(), facts.num_features,
                        facts.num_classes);
}

int run(EvaluateOptions const& options, Context& context) {
  if (options.graph.empty()) runtime::throw_user("evaluate: name the store with --graph graph.h5");
  if (options.weights.empty()) runtime::throw_user("evaluate: name the weights with --weights FILE.h5");
  choose_gemm_math(options.gemm_math, "fp32");
  choose_gemm_libraries(context, options.gemm_table);
  auto const& world = context.world();
  pmm::ProcessGrid const grid(world, full_graph_shape(options.grid, world.size()));
  auto const store = graph::GraphStore::open(world, options.graph);
  auto const weights = models::read_weights_facts(world, options.weights);
  require_fitting_widths(weights, store, options.weights);
  if (weights.has_features)
    runtime::throw_user(
        "{} has features that were trained, which evaluate does not use yet; train evaluates them "
        "itself (--eval-every)",
        options.weights);
  if (!options.predictions.empty()) {
    if (store.facts().label_kind != graph::LabelKind::single)
      runtime::throw_user("evaluate: --predictions writes one class a vertex, but {} has several",
                          store.name());
    runtime::require_writable(world, options.predictions, "predictions");
  }

  auto const settings = model_of(weights, options);
  models::OptimizerSettings optimizer; // without moments: nothing is trained
  optimizer.kind = models::OptimizerKind::sgd;
  optimizer.momentum = 0;
  if (!options.force_memory)
    require_memory(context, "evaluate",
                   models::estimate_memory<float>(grid, store.facts(), models::plan_gcn(store, settings),
                                                  settings, optimizer));
  models::Gcn<float> model(grid, store, settings);
  auto loss = models::make_vertex_loss<float>(grid, store, model.plan().logits());
  models::load_weights(grid, options.weights, model.parameters());
  runtime::PhaseTimes phases;
  runtime::DefaultExec const exec;
  auto const& logits = model.forward(exec, models::Pass::evaluation, 0, phases);
  auto const scores = models::scores_of(loss.evaluate(exec, logits));
  if (auto const sign = models::sign_of_divergence(scores); !sign.empty())
    runtime::throw_user("{} on {}: {}; the weights have diverged, or features are too large", options.weights,
                        options.graph, sign);
  if (!options.predictions.empty()) models::write_predictions(grid, store, logits, options.predictions);

  context.metrics.write("evaluate", {{"train_acc", scores[0].accuracy()},
                                     {"val_acc", scores[1].accuracy()},
                                     {"test_acc", scores[2].accuracy()},
                                     {"train_loss", scores[0].loss},
                                     {"val_loss", scores[1].loss},
                                     {"test_loss", scores[2].loss}});
  if (world.is_root()) {
    std::string text = fmt::format("{:<10}{:>10}{:>12}{:>10}\n", "split", "accuracy", "loss", "vertices");
    for (auto const split : {graph::Split::train, graph::Split::valid, graph::Split::test}) {
      auto const& score = scores[static_cast<std::size_t>(split)];
      text += fmt::format("{:<10}{:>10.4f}{:>12.6f}{:>10}\n", graph::name_of(split), score.accuracy(),
                          score.loss, score.num_counted);
    }
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_evaluate() {
  auto command = std::make_unique<Command>("evaluate", "Evaluate trained weights on a graph");
  auto const options = std::make_shared<EvaluateOptions>();
  command->input("--graph", options->graph, "Store to evaluate on");
  command->input("--weights", options->weights, "Weights that train --save-weights wrote");
  command->output("--predictions", options->predictions, "Write each vertex's class to this file");
  command->option("--grid", options->grid, "Ranks along data, X, Y and Z as DxXxYxZ, or auto");
  command->option("--feature-norm", options->feature_norm,
                  "row or none; by default what the weights were trained with", one_of({"row", "none"}));
  add_gemm_math_option(*command, options->gemm_math);
  add_gemm_table_option(*command, options->gemm_table);
  add_force_memory_option(*command, options->force_memory);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
