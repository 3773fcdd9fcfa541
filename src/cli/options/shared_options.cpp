// SPDX-License-Identifier: Apache-2.0
#include "cli/options/shared_options.hpp"

#include "pmm/gemm/gemm_choice.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/text_file.hpp"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>

namespace orthant::cli {
namespace {

/// Upper bound of --propagation-steps; larger values are taken for typing errors.
constexpr std::int64_t most_propagations = 1000;
constexpr std::int64_t longest_side_of_tile = 1 << 20;

} // namespace

void add_model_options(Command& command, GraphModelOptions& o) {
  std::string summaries;
  for (auto const& own : models::registered_convolutions())
    summaries += fmt::format("; {} ({})", own->name, own->summary);
  command.option(
      "--model", o.model,
      "Model: gcn; sage (GraphSAGE: separate weights for the vertex itself and for its neighbors); "
      "graphconv (like sage, with the sum over the neighbors); tag (powers of the adjacency "
      "matrix, each with a weight); gin (a learned factor for the vertex itself, and a perceptron "
      "of two layers); sgc (propagation steps, then one linear layer); appnp (a perceptron, then "
      "propagation steps that mix in its output); gcnii (deep; each layer mixes in the first "
      "layer's output); gat or gatv2 (attention over the neighbors); transformer (dot-product "
      "attention, and a weight for the vertex itself); rgcn (a weight for each relation of the "
      "graph); rsage (GraphSAGE for each relation); rgat (GAT for each relation)" +
          summaries,
      one_of(models::model_names()));
  command.option(
      "--aggregator", o.aggregator,
      "How --model sage and graphconv aggregate neighbors: mean, sum, max, or auto (mean for sage, sum "
      "for graphconv)",
      one_of({"auto", "mean", "sum", "max"}));
  command.option(
      "--activation", o.activation,
      "Activation function of the hidden layers: relu, elu, gelu, silu, leaky_relu (slope 0.01) or tanh",
      one_of({"relu", "elu", "gelu", "silu", "leaky_relu", "tanh"}));
  command.option(
      "--propagation-steps", o.propagation_steps,
      "Number of propagation steps of --model sgc (default 2) and appnp (default 10), and the largest "
      "power of tag (default 3)",
      whole_number(1, most_propagations));
  command.option("--teleport", o.teleport,
                 "Share of the first layer's output in each step of --model appnp, "
                 "and in each layer of gcnii",
                 in_range(0, 1));
  command.option(
      "--theta", o.theta,
      "Strength of the weights of --model gcnii: layer l uses a W + (1 - a) I with a = log(theta / l + 1)",
      above(0, 1));
  constexpr std::int64_t most_heads = 1'024;
  command.option(
      "--heads", o.heads,
      "Number of attention heads in hidden layers; their outputs are concatenated, so it divides --hidden",
      whole_number(1, most_heads));
  command.option("--output-heads", o.output_heads,
                 "Number of attention heads in the output layer; the logits are the mean over them",
                 whole_number(1, most_heads));
  command.flag(
      "--target-weights", o.target_weights,
      "Give each relation of --model rgat a weight matrix of its own for the targets of its edges, as "
      "GATConv with two input widths in PyTorch Geometric; without it both ends have the same");
  constexpr std::int64_t most_shares = 65'535; // as many as relations
  command.option("--bases", o.bases,
                 "Number of basis matrices of --model rgcn and rsage: the weight of each relation is a "
                 "trained combination of them; 0: each relation has a matrix of its own",
                 whole_number(0, most_shares));
  command.option(
      "--blocks", o.blocks,
      "Number of blocks on the diagonal of each relation's weight in --model rgcn or rsage; 0: full weights. "
      "A layer whose widths are not multiples of it has full weights",
      whole_number(0, most_shares));
}

models::Aggregator aggregator_of(GraphModelOptions const& o) {
  return o.aggregator == "auto" ? models::usual_aggregator(models::parse_model(o.model))
                                : models::parse_aggregator(o.aggregator);
}

void set_model(models::NetworkSettings& settings, GraphModelOptions const& o) {
  models::set_model(settings, models::parse_model(o.model), aggregator_of(o));
  settings.activation = models::parse_activation(o.activation);
  constexpr std::int64_t steps_of_sgc = 2;  // Wu et al. (arXiv 1902.07153)
  constexpr std::int64_t powers_of_tag = 3; // as in PyTorch Geometric
  settings.num_propagations =
      o.propagation_steps.value_or(settings.model == models::Model::sgc   ? steps_of_sgc
                                   : settings.model == models::Model::tag ? powers_of_tag
                                                                          : settings.num_propagations);
  settings.teleport = o.teleport;
  settings.theta = o.theta;
  settings.num_heads = o.heads;
  settings.num_output_heads = o.output_heads;
  settings.has_target_weights = o.target_weights;
  settings.num_bases = o.bases;
  settings.num_blocks = o.blocks;
}

void add_operator_options(Command& command, std::string& normalize, std::string& self_loops) {
  command.option("--normalize", normalize,
                 "Normalization of the adjacency matrix A: sym (D^-1/2 A D^-1/2), row (D^-1 A), none (A), or "
                 "auto (that of --init-from; else the default of --model; else that of the store)",
                 one_of({"auto", "sym", "row", "none"}));
  command.option("--self-loops", self_loops,
                 "Self loops of A: add (one per vertex, in place of the graph's own), keep (the graph's own; "
                 "needs --normalize none), drop, or auto (add for sym and row, keep for none)",
                 one_of({"auto", "add", "keep", "drop"}));
}

void add_grid_options(Command& command, GridOptions& o, std::string_view what_is_open) {
  constexpr std::int64_t most_measured = 1000;
  command.option("--grid", o.grid, "Ranks along data, X, Y and Z as DxXxYxZ, or auto");
  command.input("--machine", o.machine,
                fmt::format("Machine model for predictions ({}, plans): perlmutter, frontier, tuolumne, "
                            "alps, h200-node, host, or a .toml file as bench machine writes it",
                            what_is_open));
  command.option("--measure-top", o.measure_top,
                 fmt::format("With {}: run the N best predictions for three steps each and keep the fastest; "
                             "0: choose by prediction alone",
                             what_is_open),
                 whole_number(0, most_measured));
}

void require_choice(GridOptions const& o, bool is_open, std::string_view what_is_open) {
  if (is_open || (o.machine.empty() && o.measure_top == 0)) return;
  runtime::throw_user("--{} decides what is left open: it needs {}",
                      o.machine.empty() ? "measure-top" : "machine", what_is_open);
}

void add_rate_schedule_options(Command& command, OptimizerOptions& o, std::string_view advice) {
  command.option(
      "--lr-schedule", o.lr_schedule,
      "Learning rate after the warm-up: constant; linear or cosine (falls to --min-lr in the last "
      "step); step (times --lr-factor every --lr-step steps); plateau (times --lr-factor after "
      "--lr-patience evaluations without a smaller validation loss); wsd (constant, then falls to "
      "--min-lr in the last --lr-decay-share of the steps); inverse-sqrt (times the square root of "
      "--warmup-steps over the number of the step)",
      one_of({"constant", "step", "linear", "cosine", "plateau", "wsd", "inverse-sqrt"}));
  command.option("--warmup-steps", o.warmup_steps,
                 fmt::format("Steps over which the learning rate rises from 0 to --lr{}", advice),
                 whole_number(0));
  command.option("--min-lr", o.min_lr, "Smallest learning rate of a schedule; at most --lr",
                 in_range(0, largest_rate));
  command.option("--lr-step", o.lr_step,
                 "Number of steps after which --lr-schedule step changes the learning rate", whole_number(0));
  command.option("--lr-factor", o.lr_factor,
                 "Factor by which --lr-schedule step and plateau multiply the learning rate", above(0, 1));
  command.option("--lr-patience", o.lr_patience,
                 "For --lr-schedule plateau: number of evaluations without a smaller validation loss before "
                 "the rate is reduced",
                 whole_number(0));
  command.option("--lr-decay-share", o.lr_decay_share,
                 "Share of the steps, at the end, in which --lr-schedule wsd reduces the learning rate",
                 above(0, 1));
}

void add_optimizer_option(Command& command, OptimizerOptions& o) {
  command.option("--optimizer", o.optimizer, "adam, adamw, lion, jorge or sgd",
                 one_of({"adam", "adamw", "lion", "jorge", "sgd"}));
  command.option("--jorge-interval", o.jorge_interval,
                 "Steps between two updates of the preconditioners of --optimizer jorge", whole_number(1));
  command.option("--jorge-tile", o.jorge_tile,
                 "Largest side of the tiles of matrices that --optimizer jorge preconditions",
                 whole_number(1, longest_side_of_tile));
}

void add_betas_option(Command& command, OptimizerOptions& o) {
  command.option(
      "--betas", o.betas,
      "Decay rates of Adam's two moments, such as 0.9,0.95; of Lion the weight of the momentum in a step "
      "and its decay rate, 0.9,0.99 in its paper",
      in_range(0, 0.9999999));
  command.option(
      "--moments", o.moments,
      "Format in which Adam and Lion keep moments: fp32 (as --compute-dtype), bf16, or int8 with a "
      "scale per 256 numbers",
      one_of({"fp32", "bf16", "int8"}));
}

void add_weight_options(Command& command, WeightOptions& o, std::string_view unit, std::string_view best) {
  command.begin_group("Weights");
  command.input("--init-from", o.init_from, "Start from the weights of this file");
  command.option("--init-skip", o.init_skip,
                 "Weights that --init-from does not read: names or patterns, such as layer2.*,*.bias; they "
                 "start as in a new model");
  command.output(
      "--save-weights", o.save_weights,
      fmt::format(
          "Write the final weights to this file, and those of the best {} to a second one (w.h5, w-best.h5)",
          unit));
  command.output("--save-best", o.save_best, fmt::format("Write the weights of the {} to this file", best));
}

void add_checkpoint_options(Command& command, CheckpointOptions& o, std::string_view unit) {
  command.begin_group("Checkpoints");
  command.output_folder("--checkpoint", o.checkpoint,
                        "Folder for checkpoints; one is also written at the end");
  command.option("--checkpoint-every", o.checkpoint_every,
                 fmt::format("{}s between checkpoints, such as 10, or minutes, such as 30min",
                             unit == "epoch" ? "Epoch" : "Step"));
  command.option("--checkpoint-keep", o.checkpoint_keep, "Number of checkpoints to keep, the newest ones",
                 whole_number(1));
  command.option("--checkpoint-async", o.checkpoint_async,
                 "Write checkpoints while the training goes on: on or off", one_of({"on", "off"}));
  command.option("--max-walltime", o.max_walltime,
                 "Stop with a checkpoint and status 75 before the program has run for this time (2h, 90min); "
                 "Slurm's time limit has the same effect");
  command.option("--resume", o.resume,
                 "Resume from a checkpoint: its path, auto (the newest valid one in --checkpoint, or a new "
                 "start if there is none) or never");
  command.option("--resume-override", o.resume_override,
                 fmt::format("Settings that may differ from the checkpoint: precision, learning-rate, length "
                             "(--{}s, if the learning rate decays over them), or several of them",
                             unit),
                 one_of({"precision", "learning-rate", "length"}));
}

using Json = nlohmann::ordered_json;

std::vector<std::string> names_of(std::span<Preset const> presets) {
  std::vector<std::string> names;
  for (auto const& preset : presets)
    names.emplace_back(preset.name);
  return names;
}

Json const& options_of(std::span<Preset const> presets, std::string_view name) {
  auto const found = std::ranges::find(presets, name, &Preset::name);
  ORTHANT_REQUIRE(found != presets.end(), "no preset ", name);
  return found->options;
}

void set_unless_given(Context& context, Json const& values,
                      std::function<void(std::string const&, Json const&)> const& set) {
  auto& sources = context.run_record.at("sources");
  for (auto const& [name, value] : values.items()) {
    if (sources.value(name, std::string("default")) != "default") continue;
    set(name, value);
    context.run_record.at("configuration")[name] = value;
    sources[name] = "preset";
  }
}

bool PresetFit::gives(char const* name) const {
  return context_.run_record.at("sources").value(name, std::string()) == "preset";
}

bool PresetFit::is_used(std::string_view name) const {
  static constexpr std::array<std::string_view, 6> of_trainings{"epochs",       "steps", "patience",
                                                                "warmup-steps", "lr",    "min-lr"};
  auto const command = context_.run_record.value("command", std::string("train"));
  if (command.starts_with("train")) return true;
  auto const is_of_training = std::ranges::find(of_trainings, name) != of_trainings.end();
  auto const is_of_batches = name == "sequence" || name == "global-batch"; // set by evaluations
  return !is_of_training && !(is_of_batches && command == "evaluate-lm");
}

void PresetFit::tell() const {
  if (!changes_.empty() && context_.world().is_root())
    context_.log().info("--preset {} gives way to the other options: {}", preset_, fmt::join(changes_, ", "));
}

namespace {

using pmm::GemmMath;

constexpr std::array<std::pair<char const*, GemmMath>, 3> math_words{
    {{"fp32", GemmMath::fp32}, {"tf32", GemmMath::tf32}, {"bf16", GemmMath::bf16}}};

/// Processor of rank 0, on all ranks, so that ranks on different processors use the same libraries.
runtime::Processor processor_of_root(runtime::Communicator const& world) {
  auto processor = runtime::find_processor();
  auto text = nlohmann::json{{"name", processor.name},
                             {"vendor", processor.vendor},
                             {"vectors", static_cast<int>(processor.vectors)},
                             {"family", processor.family},
                             {"model", processor.model},
                             {"bf16_tiles", processor.has_bf16_tiles}}
                  .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  runtime::broadcast_text(world, text, 0);
  auto const json = nlohmann::json::parse(text);
  return {json.at("name"),   json.at("vendor"), static_cast<runtime::Vectors>(json.at("vectors").get<int>()),
          json.at("family"), json.at("model"),  json.at("bf16_tiles")};
}

pmm::GemmTable read_gemm_table(runtime::Communicator const& world, std::filesystem::path const& path) {
  auto const text = runtime::read_table_file(
      world, path, [&](std::string_view read) { std::ignore = pmm::parse_gemm_table(read, path); });
  return pmm::parse_gemm_table(text, path);
}

} // namespace

void add_gemm_math_option(Command& command, std::string& math) {
  command.option("--gemm-math", math,
                 "Precision of the multiplications in fp32 dense products: fp32; on CUDA devices also tf32 "
                 "or bf16 (bf16 then also for attention); sums are fp32",
                 one_of({"fp32", "tf32", "bf16"}));
}

void choose_gemm_math(std::string const& math, std::string const& dtype) {
  for (auto const& [word, value] : math_words) {
    if (math != word) continue;
    if (!pmm::has_gemm_math(value))
      runtime::throw_user(
          "--gemm-math {} needs a build for CUDA devices{}; this one multiplies on {}: leave it out", math,
          value == GemmMath::bf16 ? " and one of compute capability 8.0 or newer" : "",
          runtime::DefaultExec::name());
    if (value != GemmMath::fp32 && dtype != "fp32")
      runtime::throw_user("--gemm-math {} rounds products of fp32; leave it out where numbers are {}", math,
                          dtype);
    pmm::set_gemm_math(value);
  }
}

void add_gemm_table_option(Command& command, std::string& path) {
  command.input("--gemm-table", path,
                "Table that assigns a library to each shape of dense products (bench gemm --tune writes "
                "one); default: the built-in table");
}

void choose_gemm_libraries(Context& context, std::string const& path) {
  auto const& world = context.world();
  auto const processor = processor_of_root(world);
  auto const table = path.empty() ? pmm::built_in_gemm_table() : read_gemm_table(world, path);
  if (!path.empty() && world.is_root() && std::ranges::none_of(table.processors, [&](auto const& processors) {
        return processors.fit(processor);
      }))
    context.log().warn("the table '{}' has no entry for {} (family {}, model {}, {}): OpenBLAS multiplies",
                       path, processor.name, processor.family, processor.model, name_of(processor.vectors));
  pmm::set_gemm_choice(table, processor);
  context.run_record["gemm_libraries"] = {
      {"table", path.empty() ? "built-in" : path},
      {"choice", nlohmann::ordered_json::parse(pmm::describe_gemm_choice())}};
}

std::pair<std::string, std::string> gemm_record() {
  return {"dense_libraries", pmm::describe_gemm_choice()};
}

std::vector<std::string> gemm_maths() {
  std::vector<std::string> known;
  for (auto const& [word, value] : math_words)
    if (pmm::has_gemm_math(value)) known.emplace_back(word);
  return known;
}

} // namespace orthant::cli
