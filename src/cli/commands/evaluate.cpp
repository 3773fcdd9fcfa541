// SPDX-License-Identifier: Apache-2.0
//
// orthant evaluate: losses and accuracies of trained weights, and their predictions for every vertex.

#include "cli/commands/subcommands.hpp"

#include "cli/options/gemm_options.hpp"
#include "cli/training/scores_text.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/train_modes.hpp"
#include "cli/training/train_options.hpp"
#include "cli/training/train_settings.hpp"
#include "graph/partition/input_summary.hpp"
#include "models/gnn/files/network_weights.hpp"
#include "models/gnn/files/predictions.hpp"
#include "models/gnn/links/link_loss.hpp"
#include "models/gnn/network/grid_choice.hpp"
#include "models/training/training_run.hpp"
#include "models/training/vertex_loss.hpp"
#include "runtime/files/staged_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>

namespace orthant::cli {
namespace {

bool is_same(nlohmann::ordered_json const& given, std::string const& recorded) {
  if (given.is_string()) return given.get<std::string>() == recorded;
  if (given.is_boolean()) return recorded == (given.get<bool>() ? "yes" : "no") || recorded == given.dump();
  double number = 0;
  auto const* const end = recorded.data() + recorded.size();
  auto const [last, error] = std::from_chars(recorded.data(), end, number);
  return error == std::errc() && last == end && given.is_number() && given.get<double>() == number;
}

} // namespace

void require_given_network(Context const& context, std::string const& path,
                           models::Architecture const& of_weights, std::vector<std::string> const& idle) {
  auto const& sources = context.run_record.at("sources");
  auto const& configuration = context.run_record.at("configuration");
  for (auto const& [part, recorded] : of_weights) {
    auto option = part;
    std::ranges::replace(option, '_', '-');
    if (sources.value(option, std::string("default")) == "default" || !configuration.contains(option) ||
        std::ranges::find(idle, option) != idle.end())
      continue;
    auto const& given = configuration.at(option);
    if (!is_same(given, recorded))
      runtime::throw_user("--{} {}: the weights of '{}' are of another network, whose {} is {}; leave out "
                          "--{}, or give that value",
                          option, given.is_string() ? given.get<std::string>() : given.dump(), path, part,
                          recorded, option);
  }
}

namespace {

struct EvaluateOptions : TrainOptions {
  EvaluateOptions() { feature_norm.clear(); } // empty: as in the training of the weights

  std::string weights;
  std::string predictions;
  bool probabilities = false;
  std::optional<std::int64_t> embeddings; // layer whose outputs are written
};

/// Options of train that evaluate uses: options of the evaluation, then options of the network, which must match the weights.
constexpr std::array<std::string_view, 37> used_by_evaluate{"loss",
                                                            "graph",
                                                            "split",
                                                            "dataset",
                                                            "seed",
                                                            "grid",
                                                            "schedule",
                                                            "normalize",
                                                            "self-loops",
                                                            "gemm-math",
                                                            "gemm-table",
                                                            "compute-dtype",
                                                            "preset",
                                                            "model",
                                                            "layers",
                                                            "hidden",
                                                            "aggregator",
                                                            "norm",
                                                            "residual",
                                                            "bias",
                                                            "head",
                                                            "input-projection",
                                                            "teleport",
                                                            "theta",
                                                            "heads",
                                                            "task",
                                                            "propagation-steps",
                                                            "jump",
                                                            "decoder",
                                                            "output-heads",
                                                            "decoder-hidden",
                                                            "embedding",
                                                            "bases",
                                                            "blocks",
                                                            "activation",
                                                            "force-memory",
                                                            "feature-norm"};

/// Options of train that describe the network of the weights. `task`: value of --task, because weights do not record which task of vertices
/// they are for.
models::Architecture network_of(models::WeightsFacts const& weights, std::string const& task) {
  auto const settings = models::settings_of(weights);
  auto parts = models::architecture_of(settings);
  for (auto& [part, value] : parts)
    if (part == "residual") value = value == "yes" ? "identity" : value == "no" ? "none" : value;
  auto const traits = models::traits_of(settings.model, settings.aggregator);
  if (traits.has_perceptrons || traits.has_identity_maps) // these always have a head
    std::erase_if(parts, [](auto const& part) { return part.first == "head"; });
  auto const& widths = settings.hidden_widths;
  if (widths.empty()) // a single layer has output heads only
    std::erase_if(parts, [](auto const& part) { return part.first == "heads"; });
  if (auto const hidden = widths.empty() ? settings.projected_width : widths.front(); hidden > 0)
    parts.emplace_back("hidden", fmt::format("{}", hidden));
  if (models::predicts_links(settings))
    parts.emplace_back("embedding", fmt::format("{}", settings.embedding_width));
  else
    parts.emplace_back("task", task == "links" ? "nodes" : task);
  return parts;
}

void require_same_network(Context& context, models::WeightsFacts const& weights, EvaluateOptions& options) {
  TrainOptions trained = options;
  trained.precision = "fp32";     // not of evaluations, which have --gemm-math alone
  apply_preset(context, trained); // sets options in the run's record
  auto const settings = models::settings_of(weights);
  trained.model = models::name_of(settings.model);
  trained.aggregator = models::name_of(settings.aggregator);
  trained.layers = settings.num_layers();
  trained.head = settings.has_head;
  trained.jump = models::name_of(settings.jump);
  trained.input_projection = settings.projected_width > 0;
  trained.task = models::predicts_links(settings) ? "links" : "nodes";
  trained.decoder = settings.decoder_width > 0 ? "mlp" : "dot";
  require_given_network(context, options.weights, network_of(weights, options.task),
                        options_without_meaning(trained));
  settle_idle_options(context, trained);
  options.normalize = trained.normalize;
  options.self_loops = trained.self_loops;
  options.schedule = trained.schedule;
}

models::NetworkSettings model_of(models::WeightsFacts const& weights, EvaluateOptions const& options) {
  auto settings = models::settings_of(weights);
  if (!options.feature_norm.empty()) settings.feature_norm = models::parse_feature_norm(options.feature_norm);
  if (options.normalize != "auto") settings.self_loops.reset(); // use the default of the other normalization
  models::choose_operator(settings, options.normalize, options.self_loops);
  if (options.schedule != "auto") settings.schedule = models::parse_schedule(options.schedule);
  return settings;
}

void require_fitting_widths(models::WeightsFacts const& weights, graph::GraphStore const& store,
                            std::string const& path) {
  auto const& facts = store.facts();
  if (weights.predicts_links) {
    if (weights.num_features() != facts.num_features)
      runtime::throw_user("{} reads {} features, but {} has {}", path, weights.num_features(), store.name(),
                          facts.num_features);
    return;
  }
  if (weights.num_features() == facts.num_features && weights.num_classes() == facts.num_classes) return;
  auto const pattern = models::weights_of_classes(weights);
  runtime::throw_user("{} maps {} features to {} classes, but {} has {} features and {} classes{}", path,
                      weights.num_features(), weights.num_classes(), store.name(), facts.num_features,
                      facts.num_classes,
                      pattern && weights.num_features() == facts.num_features
                          ? fmt::format("; train --init-from {} --init-skip '{}' learns them", path, *pattern)
                          : "");
}

/// Throws UserError if the weights record another kind of labels or other names of classes than those of the graph.
void require_fitting_labels(models::WeightsFacts const& weights, graph::GraphStore const& store,
                            std::string const& path) {
  auto const& facts = store.facts();
  auto const kind = graph::name_of(facts.label_kind);
  if (!weights.label_kind.empty() && weights.label_kind != kind)
    runtime::throw_user("{} predicts labels of the kind {}, but those of {} are {}", path, weights.label_kind,
                        store.name(), kind);
  if (!weights.class_names.empty() && facts.has_class_names() && weights.class_names != facts.class_names)
    runtime::throw_user("{} predicts the classes {}, but those of {} are {}", path,
                        graph::some_of(weights.class_names), store.name(), graph::some_of(facts.class_names));
}

/// Throws UserError if --predictions, --probabilities and --embeddings do not fit together.
void require_sensible_outputs(runtime::Communicator const& world, EvaluateOptions const& options) {
  if (options.predictions.empty()) {
    if (options.probabilities || options.embeddings)
      runtime::throw_user("evaluate: {} goes into the file of --predictions; name one",
                          options.probabilities ? "--probabilities" : "--embeddings");
    return;
  }
  models::require_prediction_format(options.predictions, options.probabilities,
                                    options.embeddings.has_value());
  runtime::require_writable(world, options.predictions, "predictions");
}

/// Throws UserError if predictions of classes are requested from weights that predict links.
void require_outputs_of_links(models::WeightsFacts const& weights, EvaluateOptions const& options) {
  if (!weights.predicts_links || options.predictions.empty()) return;
  if (!options.embeddings || !options.predictions.ends_with(".npy"))
    runtime::throw_user(
        "{} predicts links, and no classes: write embeddings alone, with --embeddings LAYER and "
        "--predictions FILE.npy",
        options.weights);
}

void require_layer(models::WeightsFacts const& weights, EvaluateOptions const& options) {
  auto const last = models::last_layer_of(weights);
  if (options.embeddings && *options.embeddings > last)
    runtime::throw_user("--embeddings {}: {} has layers 0 to {}{}", *options.embeddings, options.weights,
                        last, weights.head_classes ? ", of which the last is the head" : "");
}

void report(Context& context, models::Scores const& scores) {
  auto record = scores_json(scores);
  if (are_of_links(scores)) {
    context.metrics.write("evaluate", record);
    return say(context, "{}", link_table({{"these weights", &scores}}));
  }
  record["train_loss"] = scores[0].loss;
  record["val_loss"] = scores[1].loss;
  record["test_loss"] = scores[2].loss;
  context.metrics.write("evaluate", record);
  if (merit_of(scores) == Merit::r2)
    return say(context, "{}", regression_table({{"these weights", &scores}}));
  if (!context.world().is_root()) return;
  // 39 characters per line, for narrow terminals.
  std::string text;
  auto const line = [&](char const* name, auto const& text_of) {
    text += fmt::format("{:<9}{:>10}{:>10}{:>10}\n", name, text_of(scores[0]), text_of(scores[1]),
                        text_of(scores[2]));
  };
  using Score = models::SplitScore;
  text += fmt::format("{:<9}{:>10}{:>10}{:>10}\n", "split", "train", "valid", "test");
  line("accuracy", [](Score const& score) { return fmt::format("{:.4f}", score.accuracy()); });
  line("loss", [](Score const& score) { return fmt::format("{:.6f}", score.loss); });
  line("vertices", [](Score const& score) { return fmt::format("{}", score.num_counted); });
  line("macro-F1", [](Score const& score) { return fmt::format("{:.4f}", score.macro_f1); });
  line("micro-F1", [](Score const& score) { return fmt::format("{:.4f}", score.micro_f1); });
  line("ROC-AUC", [](Score const& score) { return area_text(score.roc_auc); });
  text += majority_text(scores);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

template<class T>
void evaluate(EvaluateOptions options, Context& context) {
  auto const& world = context.world();
  require_full_graph_grid(options.grid, world.size());
  auto store = open_graph_of(world, options);
  auto const weights = models::read_weights_facts(world, options.weights);
  require_fitting_widths(weights, store, options.weights);
  if (!weights.predicts_links) require_fitting_labels(weights, store, options.weights);
  require_same_network(context, weights, options);
  require_layer(weights, options);
  auto const is_real = !weights.predicts_links && store.facts().label_kind == graph::LabelKind::real;
  if (is_real && options.probabilities)
    runtime::throw_user("--probabilities are of classes, and {} has targets of regression: leave it out",
                        store.name());
  if (!is_real && options.loss != "auto")
    runtime::throw_user(
        "--loss {} is for training; evaluate uses it with targets of regression only: leave it out",
        options.loss);
  require_outputs_of_links(weights, options);
  auto settings = model_of(weights, options);
  settings.keeps_outputs = options.embeddings.has_value();
  settings.trains_features = weights.has_features;
  models::use_operator(store, settings);
  require_operator(context, store, settings, precision_of<T>);
  auto const schedule = models::name_of(settings.schedule);
  auto const choice = models::choose_grid({world.size(), options.grid, schedule},
                                          models::full_graph_seconds(store.facts(), settings));
  pmm::ProcessGrid const grid(world, choice.shape);
  models::OptimizerSettings optimizer; // without moments, since nothing is trained
  optimizer.kind = models::OptimizerKind::sgd;
  optimizer.momentum = 0;
  if (!options.force_memory)
    require_memory(context, "evaluate",
                   models::estimate_memory<T>(grid, store.facts(), models::plan_network(store, settings),
                                              settings, optimizer));
  models::GraphNetwork<T> model(grid, store, settings);
  std::optional<pmm::RowLoss<T>> loss;
  std::optional<models::LinkLoss<T>> link_loss;
  if (models::predicts_links(settings)) {
    link_loss.emplace(grid, store, model.plan().layers.front().owners.value().roles, model.plan().logits(),
                      settings.seed);
    if (settings.decoder_width > 0) link_loss->use_decoder(model.shared_parameters()->decoder());
  } else {
    models::VertexLossSettings of_loss;
    if (is_real) of_loss.function = models::parse_loss_function(options.loss);
    loss.emplace(models::make_vertex_loss<T>(grid, store, model.plan().logits(), of_loss));
  }
  models::load_weights(grid, options.weights, model.parameters());
  runtime::PhaseTimes phases;
  runtime::DefaultExec const exec;
  auto const& logits = model.forward(exec, models::Pass::evaluation, 0, phases);
  auto scores = loss ? models::scores_of(loss->evaluate(exec, logits)) : link_loss->evaluate(exec, logits);
  if (auto const sign = models::sign_of_divergence(scores); !sign.empty())
    runtime::throw_user("{} on {}: {}; the weights have diverged, or features are too large", options.weights,
                        store.name(), sign);
  if (!options.predictions.empty()) {
    auto const* const embeddings =
        options.embeddings ? &model.output_of_layer(static_cast<std::size_t>(*options.embeddings)) : nullptr;
    models::write_predictions(grid, store, logits, options.probabilities, embeddings, options.predictions);
  }
  if (loss && !is_real) models::judge_by_areas<T>(grid, store, logits.placement())(logits, scores);
  report(context, scores);
}

int run(EvaluateOptions const& options, Context& context) {
  if (options.graph.empty() && options.dataset.empty())
    runtime::throw_user("evaluate: name the store with --graph graph.h5");
  if (options.weights.empty()) runtime::throw_user("evaluate: name the weights with --weights FILE.h5");
  require_sensible_outputs(context.world(), options);
  choose_gemm_math(options.gemm_math, options.compute_dtype);
  choose_gemm_libraries(context, options.gemm_table);
  if (options.compute_dtype == "fp32")
    evaluate<float>(options, context);
  else
    evaluate<double>(options, context);
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_evaluate() {
  auto command = std::make_unique<Command>("evaluate", "Evaluate trained weights on a graph");
  auto const options = std::make_shared<EvaluateOptions>();
  add_preset_option(*command, *options);
  add_options(*command, *options);
  command->read_table_of("train");
  command->pass_over_all_but(used_by_evaluate);
  command->begin_group("Evaluation");
  command->input("--weights", options->weights, "Weights that train --save-weights wrote");
  command->output("--predictions", options->predictions,
                  "File for the class of each vertex in the order of the original ids (.h5, .npy or .csv); "
                  "with several labels per vertex 0 or 1 for each");
  command->flag(
      "--probabilities", options->probabilities,
      "Add the probability of each class to --predictions; a .npy file has them in place of the classes");
  command->option(
      "--embeddings", options->embeddings,
      "Add the output of this layer to --predictions; a .npy file has it in place of the classes. "
      "Layers count from 0, as in the names of weights (layer0.weight); a head counts as one more. "
      "The last one outputs the logits, the others their activations",
      whole_number(0, most_layers));
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
