// SPDX-License-Identifier: Apache-2.0
#include "cli/training/effective_options.hpp"

#include "cli/training/checkpoints.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/job/time_limit.hpp"

#include <string_view>
#include <vector>

namespace orthant::cli {
namespace {

struct Idle {
  std::string_view option;
  std::string reason; // "is for mini-batches: ..", behind the option's name
};

std::vector<Idle> idle_optimizer_options(OptimizerOptions const& o) {
  std::vector<Idle> idle;
  if (o.lr_schedule != "step")
    idle.push_back({"lr-step", "is for --lr-schedule step: leave it out, or give that"});
  if (o.lr_schedule != "plateau")
    idle.push_back({"lr-patience", "is for --lr-schedule plateau: leave it out, or give that"});
  if (o.lr_schedule != "step" && o.lr_schedule != "plateau")
    idle.push_back({"lr-factor", "is for --lr-schedule step and plateau: leave it out, or give one of them"});
  if (o.optimizer == "sgd") idle.push_back({"betas", "are of Adam: leave them out with --optimizer sgd"});
  return idle;
}

std::vector<Idle> idle_options(TrainOptions const& o) {
  auto idle = idle_optimizer_options(o);
  if (o.mode == "full")
    for (auto const* const option :
         {"batch", "sampler", "batch-edges", "accumulate", "batch-train-fraction", "finish-full"})
      idle.push_back({option, "is for mini-batches: give --mode minibatch, or leave it out"});
  if (o.eval_every == 0) {
    idle.push_back(
        {"roc-auc", "is what evaluations find, and --eval-every 0 has none: leave one of them out"});
    idle.push_back({"monitor", "compares evaluations, and --eval-every 0 has none: leave one of them out"});
  }
  if (o.task == "nodes")
    for (auto const* const option : {"embedding", "decoder", "decoder-hidden"})
      idle.push_back({option, "is for --task links: leave it out, or give that"});
  else if (o.decoder == "dot")
    idle.push_back({"decoder-hidden", "is for --decoder mlp: leave it out, or give that"});
  if (o.task == "links") {
    idle.push_back({"roc-auc", "is always found with --task links: leave it out"});
    for (auto const* const option : {"class-weights", "label-smoothing"})
      idle.push_back({option, "is of classes of vertices: leave it out with --task links"});
  }
  auto const is_deep = o.model == "gcnii";
  auto const has_head = o.head || o.model == "gin" || is_deep;
  if (o.model == "sgc")
    for (auto const* const option : {"layers", "hidden", "norm", "activation"})
      idle.push_back({option, "is of hidden layers, and --model sgc has none: leave it out"});
  if (o.model != "sgc" && o.model != "appnp")
    idle.push_back({"propagation-steps", "is for --model sgc and appnp: leave it out, or give one of them"});
  if (o.model != "appnp" && !is_deep)
    idle.push_back({"teleport", "is for --model appnp and gcnii: leave it out, or give one of them"});
  if (!is_deep) idle.push_back({"theta", "is for --model gcnii: leave it out, or give that"});
  if (o.model == "sgc" || o.model == "appnp")
    idle.push_back(
        {"order", fmt::format("is of a layer's two products, and the layers of --model {} have one: "
                              "leave it out",
                              o.model)});
  auto const has_hidden = o.layers > 1 || has_head || o.input_projection;
  if (!has_hidden)
    idle.push_back({"hidden",
                    "is the width of hidden layers, and --layers 1 has none: leave it out, or give more "
                    "layers"});
  if (o.layers == 1 && !has_head) {
    idle.push_back(
        {"norm", "normalises hidden layers, and --layers 1 has none: leave it out, or give more layers"});
    idle.push_back(
        {"activation", "is of hidden layers, and --layers 1 has none: leave it out, or give more layers"});
    idle.push_back({"residual",
                    "goes around hidden layers, and --layers 1 has none: leave it out, or give more "
                    "layers"});
  }
  if (o.model == "gin")
    idle.push_back({"head", "is what the last perceptron of --model gin ends with: leave it out"});
  if (is_deep) idle.push_back({"head", "is what --model gcnii ends with: leave it out"});
  auto const weighs_neighbors = o.model == "gat" || o.model == "gatv2";
  if (!weighs_neighbors)
    for (auto const* const option : {"heads", "output-heads", "attention-dropout"})
      idle.push_back({option, "is for --model gat and gatv2: leave it out, or give one of them"});
  if (weighs_neighbors && o.mode == "minibatch")
    idle.push_back(
        {"batch-edges",
         fmt::format("weighs the edges of a batch, which --model {} does itself: leave it out", o.model)});
  if (o.model == "sage" && o.aggregator == "max" && o.mode == "minibatch")
    idle.push_back(
        {"batch-edges", "weighs the edges of a batch, which --aggregator max does not: leave it out"});
  if (o.model != "sage") idle.push_back({"aggregator", "is for --model sage: leave it out, or give that"});
  if (o.schedule == "pmm3d")
    idle.push_back({"gather", "says which rows move in --schedule rows: leave it out with --schedule pmm3d"});
  if constexpr (pmm::runs_on_host)
    idle.push_back(
        {"device-graph", "records work of a device, and this build computes on the host: leave it out"});
  return idle;
}

/// Whether it asks for what happens without it, which is no mistake.
bool asks_for_nothing(Context const& context, std::string_view option) {
  auto const& value = context.run_record.at("configuration").at(std::string(option));
  if (option == "device-graph") return value == "off";
  if (option == "norm" || option == "class-weights") return value == "none";
  if (option == "activation") return value == "relu";
  if (option == "monitor") return value == "accuracy";
  if (option == "decoder") return value == "dot";
  if (option == "order") return value == "auto";
  if (option == "residual" || option == "roc-auc" || option == "head") return value == false;
  if (option == "sampler") return value == "uniform";
  if (option == "batch" || option == "batch-edges") return value == "auto";
  if (option == "gather")
    return value == "auto" || value == "needed"; // the latter is refused where it is read
  if (option == "finish-full" || option == "batch-train-fraction" || option == "label-smoothing")
    return value == 0;
  return false;
}

/// Throws for a flag, and tells of what the environment or a file says.
void refuse(Context const& context, std::vector<Idle> const& idle) {
  auto const& sources = context.run_record.at("sources");
  for (auto const& [option, reason] : idle) {
    auto const source = sources.value(std::string(option), std::string("default"));
    if (source == "default" || source == "preset" || asks_for_nothing(context, option)) continue;
    if (source == "flag") runtime::throw_user("--{} {}", option, reason);
    if (context.world().is_root())
      context.log().info("{} of the {} has no effect here: it {}", option,
                         source == "config" ? "file of --config" : "environment", reason);
  }
}

void require_fitting_task(TrainOptions const& o) {
  if (o.task == "nodes") return;
  if (o.mode == "minibatch")
    runtime::throw_user("--task links is trained on the full graph so far: leave out --mode minibatch");
  if (o.prune == "on")
    runtime::throw_user("--prune on skips vertices that no training vertex depends on: leave it out with "
                        "--task links, which needs all");
}

} // namespace

void require_effective_options(Context const& context, TrainOptions const& options) {
  require_fitting_task(options);
  refuse(context, idle_options(options));
}

void require_effective_optimizer_options(Context const& context, OptimizerOptions const& options) {
  refuse(context, idle_optimizer_options(options));
}

void require_readable_times(CheckpointOptions const& options, std::string_view unit) {
  std::ignore = parse_interval(options.checkpoint_every, unit);
  if (!options.max_walltime.empty())
    std::ignore = runtime::parse_duration("--max-walltime", options.max_walltime);
}

} // namespace orthant::cli
