// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/train_lm_run.hpp"

#include "cli/training/choose_grid.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/train_settings.hpp"
#include "models/lm/training/language_model.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>

namespace orthant::cli {

std::optional<int> weights_shared_within(TrainLmOptions const& o, int ranks_per_node) {
  if (o.zero_group != "all" && o.zero != 3)
    runtime::throw_user("--zero-group {} is of --zero 3, not of --zero {}: leave it out", o.zero_group,
                        o.zero);
  if (o.zero != 3) return std::nullopt;
  return o.zero_group == "node" ? ranks_per_node : 0;
}

void require_whole_tables(TrainLmOptions const& o, pmm::GridShape const& shape) {
  if (o.zero > 0 && shape.pipe > 1 && o.tied_head && shape.size(pmm::batch_axes(shape)) > 1)
    runtime::throw_user(
        "--zero {} cannot shard a table of two stages: give --no-tied-head, or leave out --zero", o.zero);
}

namespace {

/// Throws UserError for what does not go with pruned training.
models::PruneSettings pruning_of(TrainLmOptions const& o, models::OptimizerSettings const& optimizer) {
  if (!o.prune_to) {
    if (o.prune_at) runtime::throw_user("--prune-at {} is for --prune-to: give that, too", *o.prune_at);
    return {};
  }
  if (!(*o.prune_to > 0 && *o.prune_to < 1))
    runtime::throw_user(
        "--prune-to {} is no share of weights: give a number above 0 and below 1, such as 0.8", *o.prune_to);
  if (optimizer.kind == models::OptimizerKind::jorge)
    runtime::throw_user("--prune-to leaves parts of gradients, and --optimizer jorge needs whole ones: take "
                        "another one");
  if (o.zero == 1 || o.zero == 2)
    runtime::throw_user(
        "--prune-to keeps moments of whole pieces, and --zero {} shards them: take --zero 3, or "
        "leave it out",
        o.zero);
  if (optimizer.moments != models::MomentFormat::native)
    runtime::throw_user("--prune-to keeps moments in --compute-dtype: leave out --moments {}", o.moments);
  if (optimizer.gradient_wire != runtime::Wire::native)
    runtime::throw_user(
        "--prune-to sums gradients in --compute-dtype: leave gradients= out of --comm-dtype {}",
        o.comm_dtype);
  if (o.lora_rank > 0)
    runtime::throw_user("--prune-to prunes weights that are trained, and --lora-rank trains adapters only: "
                        "leave one of them out");
  return {*o.prune_to, o.prune_at.value_or(0)};
}

} // namespace

models::OptimizerSettings optimizer_of(TrainLmOptions const& o) {
  auto settings = optimizer_of(o, o.eval_every);
  settings.zero_stage = o.zero == 3 ? 1 : static_cast<int>(o.zero); // over the batch axes beside z
  if (settings.gradient_wire != runtime::Wire::native && (o.zero > 0 || o.compute_dtype != "fp32"))
    runtime::throw_user("--comm-dtype {} goes with --zero 0 and --compute-dtype fp32: leave the others out",
                        o.comm_dtype);
  settings.pruning = pruning_of(o, settings);
  if (settings.pruning.is_on()) settings.zero_stage = 0;
  if (settings.kind != models::OptimizerKind::jorge) return settings;
  settings.zero_stage = 0;
  if (o.experts > 0)
    runtime::throw_user("--optimizer jorge does not precondition experts: take another one with --experts");
  if (o.zero == 1 || o.zero == 2)
    runtime::throw_user("--optimizer jorge shards its states over the ranks of X x Y x Z, and needs whole "
                        "gradients there: take --zero 3 in place of --zero {}, or leave it out",
                        o.zero);
  return settings;
}

pmm::GridShape grid_of_stage(TrainLmOptions const& o, pmm::GridShape const& shape, int ranks_per_node) {
  auto const within = weights_shared_within(o, ranks_per_node);
  if (!within) return shape;
  auto const sharded = models::with_data_along_z(shape, *within);
  if (sharded == shape && shape.data > 1 && shape.z == 1)
    runtime::throw_user(
        "--zero-group node: the {} x {} x {} ranks of a data group of --grid {} and one more "
        "group do not divide the {} ranks of a node: take --zero-group all, or leave out --zero",
        shape.x, shape.y, shape.z, models::grid_text(shape), ranks_per_node);
  return sharded;
}

models::InnerAxes inner_axes_of(TrainLmOptions const& o) {
  return {static_cast<int>(o.expert_axis), static_cast<int>(o.context_axis)};
}

int ranks_per_node_of(runtime::Communicator const& world) {
  auto const of_this_node = std::int64_t{world.split_by_node().size()};
  return static_cast<int>(runtime::all_reduced(world, of_this_node, runtime::Reduction::min));
}

void describe_shards(Context const& context, TrainLmOptions const& o, pmm::GridShape const& shape) {
  if (o.prune_to)
    say(context, "pruning   {:.4g} % of the entries of the blocks' matrices, {}\n", 100 * *o.prune_to,
        o.prune_at.value_or(0) == 0 ? "before the first step" : fmt::format("after step {}", *o.prune_at));
  if (o.zero == 0) return;
  auto const axes = pmm::batch_axes(shape);
  auto const num_owners = shape.size(axes);
  if (o.zero == 3) {
    say(context, "zero      stage 3: weights, gradients and moments are sharded over the {} ranks of Z{}\n",
        shape.z,
        num_owners == 1 || o.prune_to ? ""
                                      : fmt::format(", moments also over {} copies of them", num_owners));
    return;
  }
  auto const of_experts =
      shape.expert > 1 ? fmt::format(", of experts over {}", shape.size(axes.without(pmm::Axis::expert)))
                       : std::string();
  say(context, "zero      stage {}: moments{} are sharded over {} rank{} of data{}\n", o.zero,
      o.zero == 2 ? " and sums of gradients" : "", num_owners, num_owners == 1 ? "" : "s", of_experts);
}

template<class T>
std::vector<models::LanguageModelCost> rank_language_grids(Context const& context,
                                                           LanguageGridQuestion const& question) {
  auto const num_ranks = context.world().size();
  auto const machine = machine_of(context.world(), question.machine);
  models::GridLimits limits;
  limits.bytes = static_cast<double>(memory_of_rank(context));
  if constexpr (pmm::runs_on_host) limits.other_bytes = models::library_bytes_of_transformers<T>();
  limits.inner = question.inner;
  limits.shares_weights_of = question.shares_weights_of;
  limits.pipeline = question.pipeline;
  limits.num_grids = static_cast<std::size_t>(std::max<std::int64_t>(1, question.num_candidates));
  auto const fastest = [&] {
    return models::fastest_grids(num_ranks, question.model, question.sequences, question.optimizer, machine,
                                 limits, sizeof(T))
        .costs;
  };
  auto costs = fastest();
  if (!costs.empty()) return costs;
  limits = {.inner = question.inner,
            .shares_weights_of = question.shares_weights_of,
            .pipeline = question.pipeline};
  return fastest();
}

template<class T>
ChosenLanguageGrid predicted_language_grid(Context const& context, LanguageGridQuestion const& question) {
  if (question.grid == "auto") {
    auto const best = rank_language_grids<T>(context, question).front();
    return {best.shape, best.context_exchange, nullptr};
  }
  auto shape = models::parse_grid(question.grid, context.world().size(), question.inner, question.pipeline);
  if (question.shares_weights_of) shape = models::with_data_along_z(shape, *question.shares_weights_of);
  auto exchange = question.model.context_exchange;
  if (shape.context > 1 && exchange == models::ContextExchange::automatic)
    exchange = models::cost_of_language_model(shape, question.model, question.sequences, question.optimizer,
                                              machine_of(context.world(), question.machine), sizeof(T))
                   .context_exchange;
  return {shape, exchange, nullptr};
}

template<class T>
ChosenLanguageGrid choose_language_grid(Context const& context, LanguageGridQuestion const& question,
                                        models::TrainSettings const& settings, tokens::TokenFile& file) {
  if (question.grid != "auto") return predicted_language_grid<T>(context, question);
  auto const costs = rank_language_grids<T>(context, question);
  if (costs.size() == 1) return {costs.front().shape, costs.front().context_exchange, nullptr};
  std::vector<Candidate> candidates;
  for (auto const& cost : costs)
    candidates.push_back({{{"grid", models::grid_text(cost.shape)}}, cost.seconds.total()});
  auto few_steps = settings;
  few_steps.num_epochs = num_measured_steps;
  few_steps.eval_every = 0;
  auto const measured = measure(context, candidates, [&](std::size_t i) {
    pmm::ProcessGrid const grid(context.world(), costs[i].shape);
    auto model = question.model;
    model.context_exchange = costs[i].context_exchange;
    models::LanguageModel<T> training(grid, model, question.sequences, few_steps, file);
    std::vector<double> seconds;
    training.run([&](runtime::EpochRecord const& step) { seconds.push_back(step.seconds); });
    return seconds;
  });
  auto const& best = costs[measured.best];
  return {best.shape, best.context_exchange, measured.record};
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::vector<models::LanguageModelCost> rank_language_grids<T>(Context const&,                     \
                                                                         LanguageGridQuestion const&);       \
  template ChosenLanguageGrid predicted_language_grid<T>(Context const&, LanguageGridQuestion const&);       \
  template ChosenLanguageGrid choose_language_grid<T>(Context const&, LanguageGridQuestion const&,           \
                                                      models::TrainSettings const&, tokens::TokenFile&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::cli
