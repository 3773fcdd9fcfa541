// SPDX-License-Identifier: Apache-2.0
//
// orthant plan-lm: predicts the time, communication and memory of a step of a language model on a machine, on the best grids of a number
// of ranks. It needs only the sizes of the model, and one process.

#include "cli/commands/subcommands.hpp"
#include "cli/lm/lm_files.hpp"
#include "cli/lm/train_lm_options.hpp"
#include "cli/plan/planned_training.hpp"
#include "cli/training/train_options.hpp"
#include "cli/training/train_settings.hpp"
#include "models/gnn/network/grid_choice.hpp"
#include "models/lm/training/language_model.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/training/training_run.hpp"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <limits>

namespace orthant::cli {
namespace {

constexpr std::int64_t most_ranks_of_lm = std::int64_t{1} << 16;
constexpr std::int64_t most_words = std::int64_t{1} << 30;

struct PlanLmOptions : TrainLmOptions {
  std::int64_t vocabulary = 0;
  std::optional<std::int64_t> ranks;
  std::int64_t top = 3;
  bool json = false;
  bool fit = false;
  SimulationOptions simulation;
};

using Cost = models::LanguageModelCost;

/// Options of train-lm that a plan depends on, and groups of which it uses all options.
constexpr std::array<std::string_view, 34> used_by_plan_lm{
    "Model",          "Experts",          "tokens",           "grid",         "expert-axis",
    "machine",        "sequence",         "optimizer",        "accumulate",   "document-mask",
    "freeze",         "lora-rank",        "lora-targets",     "global-batch", "activation-checkpointing",
    "preset",         "keep-collectives", "compute-dtype",    "force-memory", "zero",
    "zero-group",     "context-axis",     "context-exchange", "moments",      "comm-dtype",
    "gemm-math",      "precision",        "pipeline",         "recompute",    "pipeline-schedule",
    "jorge-interval", "jorge-tile",       "prune-to",         "prune-at"};

std::int64_t vocabulary_of(Context const& context, PlanLmOptions const& o) {
  if (o.tokens.empty() == (o.vocabulary == 0))
    runtime::throw_user("plan-lm: give either --tokens FILE or --vocabulary N");
  return o.vocabulary > 0 ? o.vocabulary : open_tokens(context, o.tokens).vocabulary().size();
}

std::string json_of(Cost const& cost, models::TransformerSettings const& model, pmm::Machine const& machine,
                    std::int64_t checkpoint_bytes, std::optional<pmm::SimulatedSeconds> const& simulated,
                    std::vector<std::string> const& advice) {
  nlohmann::ordered_json line{{"grid", models::grid_text(cost.shape)},
                              {"expert_axis", cost.shape.expert},
                              {"context_axis", cost.shape.context},
                              {"context_exchange", name_of(cost.context_exchange)},
                              {"pipeline", cost.shape.pipe},
                              {"ranks", cost.shape.num_ranks()},
                              {"recompute", text_of(model.recomputed)},
                              {"checkpoint_every", model.checkpoint_every},
                              {"sent_bytes", cost.sent_bytes},
                              {"calls", cost.num_calls},
                              {"array_bytes", cost.array_bytes},
                              {"machine", machine.name}};
  add_seconds(line, cost.seconds, Network::language_model);
  if (cost.shape.pipe > 1) line["waiting_seconds"] = cost.seconds.waiting;
  line["checkpoint_bytes"] = checkpoint_bytes;
  if (machine.storage_bytes_per_second > 0)
    line["checkpoint_seconds"] = static_cast<double>(checkpoint_bytes) / machine.storage_bytes_per_second;
  if (simulated) add_to(line, *simulated);
  line["advice"] = advice;
  return line.dump() + "\n";
}

/// Line about the size of a checkpoint and the time to write it.
std::string line_of_checkpoint(std::int64_t num_bytes, pmm::Machine const& machine) {
  auto const bytes = static_cast<double>(num_bytes);
  auto const rate = machine.storage_bytes_per_second;
  return fmt::format("\na checkpoint has {:.3g} GB: {}\n", bytes / giga,
                     rate == 0 ? fmt::format("the machine file of '{}' does not say how fast it is written "
                                             "([storage]; bench machine --folder measures it)",
                                             machine.name)
                               : fmt::format("{:.3g} s at {:.3g} GB/s", bytes / rate, rate / giga));
}

std::string line_of(Cost const& cost) {
  return fmt::format("{:<14}{:>12.1f}{:>8}{:>11.3f}{}\n", models::grid_text(cost.shape),
                     static_cast<double>(cost.sent_bytes) / mega, cost.num_calls,
                     static_cast<double>(cost.array_bytes) / giga,
                     cells_of_seconds(cost.seconds, Network::language_model));
}

/// Line about the exchange of ranks that share sequences; empty without them.
std::string line_of_context(Cost const& cost) {
  if (cost.shape.context == 1) return {};
  return fmt::format("\nthe {} ranks that share a sequence exchange {} (--context-exchange)\n",
                     cost.shape.context, name_of(cost.context_exchange));
}

/// Line about the stages of a pipeline; empty without one.
std::string line_of_stages(Cost const& cost, models::TransformerSettings const& model,
                           models::SequenceSettings const& sequences) {
  if (cost.shape.pipe == 1) return {};
  std::vector<std::int64_t> num_layers;
  for (auto const& layers : models::deal_layers(model, sequences.sequence, cost.shape.pipe))
    num_layers.push_back(layers.size());
  return fmt::format(
      "\nstages of {} layers; on {} the slowest one waits {:.4g} ms of a step for others, {:.1f} %; a larger "
      "--accumulate than {} makes it less\n",
      fmt::join(num_layers, ", "), models::grid_text(cost.shape),
      cost.seconds.waiting * milliseconds_per_second, 100 * cost.seconds.waiting / cost.seconds.total(),
      sequences.num_accumulated);
}

/// Costs of --grid, or of the fastest grids.
models::FastestGrids grids_of(PlanLmOptions const& o, int num_ranks, models::TransformerSettings const& model,
                              models::SequenceSettings const& sequences, pmm::Machine const& machine) {
  auto const optimizer = optimizer_of(o);
  auto const inner = inner_axes_of(o);
  auto const memory = o.force_memory ? 0 : machine.memory.bytes;
  if (o.grid == "auto")
    return models::fastest_grids(num_ranks, model, sequences, optimizer, machine,
                                 {.bytes = memory,
                                  .num_grids = static_cast<std::size_t>(o.top),
                                  .inner = inner,
                                  .shares_weights_of = weights_shared_within(o, machine.ranks_per_node),
                                  .pipeline = static_cast<int>(o.pipeline)});
  models::FastestGrids one;
  auto const shape = grid_of_stage(
      o, models::parse_grid(o.grid, num_ranks, inner, static_cast<int>(o.pipeline)), machine.ranks_per_node);
  one.costs.push_back(models::cost_of_language_model(shape, model, sequences, optimizer, machine));
  one.left_out = pmm::leave_out_what_does_not_fit(one.costs, memory, &Cost::memory_bytes);
  return one;
}

/// A choice of what backward passes compute again, and the grids on which it fits into memory.
struct Fit {
  models::TransformerSettings model;
  models::FastestGrids grids;

  [[nodiscard]] bool fits() const { return !grids.costs.empty(); }
  [[nodiscard]] double seconds() const {
    return fits() ? grids.costs.front().seconds.total() : std::numeric_limits<double>::infinity();
  }
  /// The options of train-lm for it; empty if everything is kept.
  [[nodiscard]] std::string flags() const {
    if (model.checkpoint_every == 1) return "--activation-checkpointing full";
    auto const words = text_of(model.recomputed);
    return words.empty() ? words : "--recompute " + words;
  }
};

/// Every choice, from nothing to every layer.
template<class GridsOf>
std::vector<Fit> fits_of(models::TransformerSettings model, GridsOf const& grids_of_model) {
  std::vector<Fit> fits;
  for (auto const attention : {false, true})
    for (auto const activations : {false, true})
      for (auto const norms : {false, true}) {
        if (activations && !has_dense_activations(model)) continue;
        model.recomputed = {norms, activations, attention};
        fits.push_back({model, grids_of_model(model)});
      }
  if (model.splits_backward) return fits;
  model.recomputed = {};
  model.checkpoint_every = 1;
  fits.push_back({model, grids_of_model(model)});
  return fits;
}

std::string table_of(std::vector<Fit> const& fits) {
  auto text = fmt::format("{:<42}{:<14}{:>10}{:>12}\n", "computed again", "grid", "GB arrays", "ms");
  for (auto const& fit : fits) {
    auto const flags = fit.flags();
    text += fmt::format("{:<42}", flags.empty() ? "nothing" : flags);
    auto const* const best = fit.fits() ? &fit.grids.costs.front() : nullptr;
    text += best == nullptr
                ? fmt::format("{:<14}{:>10.3f}{:>12}\n", "none",
                              static_cast<double>(fit.grids.left_out.least_bytes) / giga, "too much")
                : fmt::format("{:<14}{:>10.3f}{:>12.3f}\n", models::grid_text(best->shape),
                              static_cast<double>(best->array_bytes) / giga,
                              best->seconds.total() * milliseconds_per_second);
  }
  return text + "\n";
}

/// Simulates a step. If there are many ranks, one step list represents several of them.
std::optional<pmm::SimulatedSeconds> simulate(Context& context, PlanLmOptions const& o,
                                              pmm::GridShape const& shape,
                                              models::TransformerSettings const& model,
                                              models::SequenceSettings const& sequences,
                                              pmm::Machine const& machine) {
  auto const optimizer = optimizer_of(o);
  auto const list_of = [&](pmm::Coordinates const& coordinates) {
    pmm::StepPlan step(shape, coordinates, sizeof(float));
    plan_language_model_step(step, plan_sequences(shape, coordinates, model, sequences), sequences,
                             optimizer);
    return step;
  };
  return Simulation(context, o.simulation).run(shape, [&](pmm::SimulationSettings simulation) {
    simulation.folds_ranks = shape.num_ranks() > models::most_listed_ranks;
    return pmm::simulate_step(shape, list_of, models::machine_for(model, machine), simulation);
  });
}

std::string answer(Context& context, PlanLmOptions const& o, pmm::Machine const& machine) {
  auto model = model_of(o);
  model.vocabulary = vocabulary_of(context, o);
  auto const sequences = sequences_of(o);
  auto const ranks = planned_ranks(o.ranks, o.grid, context.world(), o.pipeline);
  if (ranks > most_ranks_of_lm)
    runtime::throw_user("plan-lm: a job of {} ranks; give a grid and a pipeline of at most {}", ranks,
                        most_ranks_of_lm);
  auto const num_ranks = static_cast<int>(ranks);
  require_fitting_simulation(o.simulation, o.machine, num_ranks);
  if (o.simulation.simulate && o.pipeline > 1)
    runtime::throw_user("--simulate simulates no pipelines: leave it out, or --pipeline {}", o.pipeline);
  auto const grids_of_model = [&](models::TransformerSettings const& of) {
    return grids_of(o, num_ranks, of, sequences, machine);
  };
  std::string fits_text, fit_flags;
  models::FastestGrids grids;
  if (o.fit) {
    auto fits = fits_of(model, grids_of_model);
    fits_text = table_of(fits);
    auto const& best = *std::ranges::min_element(fits, {}, &Fit::seconds);
    fit_flags = best.fits() && !best.flags().empty() ? " " + best.flags() : "";
    model = best.model;
    auto const least_bytes = [](Fit const& fit) { return fit.grids.left_out.least_bytes; };
    grids = best.fits() ? best.grids : std::ranges::min_element(fits, {}, least_bytes)->grids;
  } else {
    grids = grids_of_model(model);
  }
  auto const& [costs, left_out] = grids;
  auto const* const remedy = o.fit || o.activation_checkpointing == "full"
                                 ? "take more ranks, or a larger --accumulate"
                                 : "take more ranks, or let --fit choose what is computed again";
  auto const note = text_of(left_out, machine, costs.empty(), remedy);
  if (costs.empty()) runtime::throw_user("plan-lm: {}", note);
  require_whole_tables(o, costs.front().shape);

  auto const& best = costs.front();
  model.context_exchange = best.context_exchange;
  auto const simulated = simulate(context, o, best.shape, model, sequences, machine);
  auto const checkpoint_bytes = models::bytes_of_checkpoint(model, sequences, optimizer_of(o));
  std::string text;
  if (o.json) {
    for (auto const& cost : costs)
      text += json_of(cost, model, machine, checkpoint_bytes, &cost == &best ? simulated : std::nullopt,
                      models::advice_on_shapes(cost.shape, model, sequences));
    return text;
  }
  text = fmt::format(
      "A {} of {} layers x {}, {} heads, a vocabulary of {}; {} sequences of {} tokens per step "
      "on {} rank{}, {}\n"
      "MB sent: 10^6 bytes per step and rank{}; GB: 10^9 bytes of all arrays per rank\n"
      "ms: of a step on the machine '{}', and of its dense products, passes over arrays and "
      "calls\n\n"
      "{:<14}{:>12}{:>8}{:>11}{}\n",
      o.arch, model.num_layers, model.hidden, model.num_heads, model.vocabulary, sequences.global_batch,
      sequences.sequence, num_ranks, num_ranks == 1 ? "" : "s",
      o.gemm_math == "bf16"   ? "fp32, products in bf16"
      : o.gemm_math == "tf32" ? "fp32 (the rate of tf32 is not known)"
                              : "fp32",
      model.experts.num_experts > 0 && num_ranks > 1 ? ", on average over routers" : "", machine.name, "grid",
      "MB sent", "calls", "GB arrays", headings_of_seconds(Network::language_model));
  text.insert(0, fits_text);
  for (auto const& cost : costs)
    text += line_of(cost);
  if (!note.empty()) text += note + "\n";
  if (simulated) text += models::grid_text(best.shape) + " " + text_of(*simulated, best.seconds.total());
  text += line_of_context(best) + line_of_stages(best, model, sequences);
  text += line_of_checkpoint(checkpoint_bytes, machine);
  auto const advice = models::advice_on_shapes(costs.front().shape, model, sequences);
  if (!advice.empty())
    text += fmt::format("\nsizes that waste work on {}, by tiles of devices and by parts of ranks:\n  {}\n",
                        models::grid_text(costs.front().shape), fmt::join(advice, "\n  "));
  return text + fmt::format("\northant train-lm --tokens {} --grid {}{}{}     # on {} rank{}\n",
                            o.tokens.empty() ? "TOKENS.h5" : o.tokens, models::grid_text(costs.front().shape),
                            fit_flags,
                            given_flags(context, {"fit", "json", "ranks", "simulate", "slow-ranks",
                                                  "stragglers", "tokens", "top", "vocabulary"}),
                            num_ranks, num_ranks == 1 ? "" : "s");
}

int run(PlanLmOptions const& options, Context& context) {
  models::TrainSettings training;
  training.optimizer = optimizer_of(options);
  training.unit = "step";
  if (options.fit &&
      (!options.recompute.empty() || options.activation_checkpointing != "none" || options.keep_collectives))
    runtime::throw_user("plan-lm --fit chooses what is computed again: leave out --recompute, "
                        "--activation-checkpointing and --keep-collectives");
  std::ignore = models::with_num_steps(training, options.steps); // throws if the warm-up is too long
  require_readable_times(options, "step");
  if (options.compute_dtype != "fp32")
    runtime::throw_user("plan-lm counts bytes and seconds of fp32: leave out --compute-dtype {}",
                        options.compute_dtype);
  auto const machine = machine_of(context.world(), options.machine);
  say(context, "{}", answer(context, options, machine)); // on all ranks, so that all of them throw errors
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_plan_lm() {
  auto command = std::make_unique<Command>(
      "plan-lm", "Predict the time of a step of a language model, and show the best grids for any number of "
                 "ranks");
  auto const o = std::make_shared<PlanLmOptions>();
  add_options(*command, *o);
  command->read_table_of("train-lm");
  command->pass_over_all_but(used_by_plan_lm);
  for (auto const* const option : {"metrics", "expert-placement", "expert-loads"})
    command->pass_over(option, [] { return true; });
  for (auto const* const option : {"trace", "force"})
    command->pass_over(option, [o] { return !o->simulation.simulate; });
  command->begin_group("Planning");
  command->option("--vocabulary", o->vocabulary, "Size of the vocabulary, in place of --tokens",
                  whole_number(1, most_words));
  add_ranks_option(*command, o->ranks, most_ranks_of_lm);
  command->option("--top", o->top, "Grids to show", whole_number(1));
  add_simulation_options(*command, o->simulation, "a step on the best grid");
  command->flag(
      "--fit", o->fit,
      "Choose what the backward pass computes again: the fastest that fits into the memory of a rank, of "
      "every --recompute and --activation-checkpointing full");
  command->flag("--json", o->json, "Print one JSON object per grid");
  command->set_needs_device(false);
  command->set_predicts_collectives();
  command->set_run([o](Context& context) {
    apply_preset(context, *o);
    require_effective_optimizer_options(context, *o);
    require_effective_expert_options(context, *o);
    return run(*o, context);
  });
  return command;
}

} // namespace orthant::cli
