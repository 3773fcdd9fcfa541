// SPDX-License-Identifier: Apache-2.0
//
// orthant plan-lm: how long a step of a language model takes on a machine, and what it sends and holds, on the best grids of a
// number of ranks. It needs the sizes of the model alone, and one process.

#include "cli/commands/subcommands.hpp"
#include "cli/lm/lm_files.hpp"
#include "cli/lm/train_lm_options.hpp"
#include "cli/options/counts.hpp"
#include "cli/plan/cost_columns.hpp"
#include "cli/plan/simulation.hpp"
#include "cli/training/train_run.hpp"
#include "models/gnn/simulated_epoch.hpp"
#include "models/lm_training/fastest_grids.hpp"
#include "models/lm_training/language_model.hpp"
#include "models/lm_training/shape_advice.hpp"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>

namespace orthant::cli {
namespace {

constexpr std::int64_t most_ranks_of_lm = std::int64_t{1} << 16;
constexpr std::int64_t most_words = std::int64_t{1} << 30;

struct PlanLmOptions : TrainLmOptions {
  std::int64_t vocabulary = 0;
  std::int64_t ranks = 1;
  std::int64_t top = 3;
  bool json = false;
  SimulationOptions simulation;
};

using Cost = models::LanguageModelCost;

std::int64_t vocabulary_of(Context const& context, PlanLmOptions const& o) {
  if (o.tokens.empty() == (o.vocabulary == 0))
    runtime::throw_user("plan-lm: give either --tokens FILE or --vocabulary N");
  return o.vocabulary > 0 ? o.vocabulary : open_tokens(context, o.tokens).vocabulary().size();
}

std::string json_of(Cost const& cost, PlanLmOptions const& o, pmm::Machine const& machine,
                    std::int64_t checkpoint_bytes, std::optional<pmm::SimulatedSeconds> const& simulated,
                    std::vector<std::string> const& advice) {
  nlohmann::ordered_json line{{"grid", models::grid_text(cost.shape)},
                              {"expert_axis", cost.shape.expert},
                              {"ranks", o.ranks},
                              {"sent_bytes", cost.sent_bytes},
                              {"calls", cost.num_calls},
                              {"array_bytes", cost.array_bytes},
                              {"machine", machine.name}};
  add_seconds(line, cost.seconds, Network::language_model);
  line["checkpoint_bytes"] = checkpoint_bytes;
  if (machine.storage_bytes_per_second > 0)
    line["checkpoint_seconds"] = static_cast<double>(checkpoint_bytes) / machine.storage_bytes_per_second;
  if (simulated) add_to(line, *simulated);
  line["advice"] = advice;
  return line.dump() + "\n";
}

/// What a checkpoint of that many bytes takes.
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

/// Flags that a training must repeat, as the user gave them.
std::string given_flags(Context const& context) {
  static constexpr std::array<std::string_view, 14> own{
      "config",   "force",      "json",    "log-level", "machine", "metrics", "ranks",
      "simulate", "stragglers", "timeout", "tokens",    "top",     "trace",   "vocabulary"};
  std::string flags;
  auto const& configuration = context.run_record.at("configuration");
  for (auto const& [name, source] : context.run_record.at("sources").items()) {
    auto const is_own = std::ranges::find(own, name) != own.end();
    if (source == "default" || source == "preset" || is_own || !configuration.contains(name)) continue;
    auto const& value = configuration.at(name);
    if (value.is_boolean())
      flags += fmt::format(" --{}{}", value.get<bool>() ? "" : "no-", name);
    else
      flags += fmt::format(" --{} {}", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return flags;
}

/// A step; one list stands for more ranks than are listed one by one.
std::optional<pmm::SimulatedSeconds> simulate(Context& context, PlanLmOptions const& o,
                                              pmm::GridShape const& shape,
                                              models::TransformerSettings const& model,
                                              models::SequenceSettings const& sequences,
                                              pmm::Machine const& machine) {
  auto const optimizer = optimizer_of(o, o.eval_every);
  auto const list_of = [&](pmm::Coordinates const& coordinates) {
    pmm::StepPlan step(shape, coordinates, sizeof(float));
    plan_language_model_step(step, plan_sequences(shape, coordinates, model, sequences), sequences,
                             optimizer);
    return step;
  };
  return Simulation(context, o.simulation).run(shape, [&](pmm::SimulationSettings simulation) {
    simulation.folds_ranks = shape.num_ranks() > models::most_listed_ranks;
    return pmm::simulate_step(shape, list_of, machine, simulation);
  });
}

std::string answer(Context& context, PlanLmOptions const& o, pmm::Machine const& machine) {
  auto model = model_of(o);
  model.vocabulary = vocabulary_of(context, o);
  auto const sequences = sequences_of(o);
  auto const [costs, left_out] = models::fastest_grids(static_cast<int>(o.ranks), model, sequences,
                                                       optimizer_of(o, o.eval_every), machine,
                                                       {.bytes = machine.memory.bytes,
                                                        .num_grids = static_cast<std::size_t>(o.top),
                                                        .expert_axis = static_cast<int>(o.expert_axis)});
  auto const note =
      text_of(left_out, machine, costs.empty(), "take more ranks, or --activation-checkpointing full");
  if (costs.empty()) runtime::throw_user("plan-lm: {}", note);

  auto const& best = costs.front();
  auto const simulated = simulate(context, o, best.shape, model, sequences, machine);
  auto const checkpoint_bytes = models::bytes_of_checkpoint(model, sequences, optimizer_of(o, o.eval_every));
  std::string text;
  if (o.json) {
    for (auto const& cost : costs)
      text += json_of(cost, o, machine, checkpoint_bytes, &cost == &best ? simulated : std::nullopt,
                      models::advice_on_shapes(cost.shape, model, sequences));
    return text;
  }
  text =
      fmt::format("A {} of {} layers x {}, {} heads, a vocabulary of {}; {} sequences of {} tokens per step "
                  "on {} rank{}, fp32\n"
                  "MB sent: 10^6 bytes per step and rank; GB: 10^9 bytes of all arrays per rank\n"
                  "ms: of a step on the machine '{}', and of its dense products, passes over arrays and "
                  "calls\n\n"
                  "{:<14}{:>12}{:>8}{:>11}{}\n",
                  o.arch, model.num_layers, model.hidden, model.num_heads, model.vocabulary,
                  sequences.global_batch, sequences.sequence, o.ranks, o.ranks == 1 ? "" : "s", machine.name,
                  "grid", "MB sent", "calls", "GB arrays", headings_of_seconds(Network::language_model));
  for (auto const& cost : costs)
    text += line_of(cost);
  if (!note.empty()) text += note + "\n";
  if (simulated) text += models::grid_text(best.shape) + " " + text_of(*simulated, best.seconds.total());
  text += line_of_checkpoint(checkpoint_bytes, machine);
  auto const advice = models::advice_on_shapes(costs.front().shape, model, sequences);
  if (!advice.empty())
    text += fmt::format("\nsizes that waste work on {}, by tiles of devices and by parts of ranks:\n  {}\n",
                        models::grid_text(costs.front().shape), fmt::join(advice, "\n  "));
  return text + fmt::format("\northant train-lm --tokens {} --grid {}{}     # on {} rank{}\n",
                            o.tokens.empty() ? "TOKENS.h5" : o.tokens, models::grid_text(costs.front().shape),
                            given_flags(context), o.ranks, o.ranks == 1 ? "" : "s");
}

int run(PlanLmOptions const& options, Context& context) {
  require_fitting_simulation(options.simulation, options.machine, options.ranks);
  auto const machine = machine_of(context.world(), options.machine);
  say(context, "{}", answer(context, options, machine)); // every rank answers, so that all refuse alike
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_plan_lm() {
  auto command = std::make_unique<Command>(
      "plan-lm", "Show how long a step of a language model takes on the best grids of any number of ranks");
  auto const o = std::make_shared<PlanLmOptions>();
  command->input("--tokens", o->tokens, "Token file whose vocabulary to plan for");
  command->option("--vocabulary", o->vocabulary, "Or its number of words", whole_number(1, most_words));
  command->option("--ranks", o->ranks, "Number of ranks to plan for", whole_number(1, most_ranks_of_lm));
  add_expert_axis_option(*command, o->expert_axis);
  add_planned_options(*command, *o);
  command->begin_group("Planning");
  command->input("--machine", o->machine,
                 "Machine to plan for, by name (perlmutter, frontier, tuolumne, alps, h200-node, host) or "
                 ".toml file (bench machine writes one)");
  command->option("--top", o->top, "Grids to show", whole_number(1));
  add_simulation_options(*command, o->simulation, "a step on the best grid");
  command->flag("--json", o->json, "Print one JSON object per grid");
  command->set_needs_device(false);
  command->set_run([o](Context& context) {
    apply_preset(context, *o);
    require_effective_expert_options(context, *o);
    return run(*o, context);
  });
  return command;
}

} // namespace orthant::cli
