// SPDX-License-Identifier: Apache-2.0
//
// orthant plan-lm: how long a step of a language model takes on a machine, and what it sends and holds, on the best grids of a
// number of ranks. It needs the sizes of the model alone, and one process.

#include "cli/commands/subcommands.hpp"
#include "cli/lm/lm_files.hpp"
#include "cli/lm/train_lm_options.hpp"
#include "cli/options/counts.hpp"
#include "cli/training/train_run.hpp"
#include "models/lm_training/language_model_cost.hpp"

#include <algorithm>
#include <array>

namespace orthant::cli {
namespace {

constexpr std::int64_t most_ranks = std::int64_t{1} << 16;
constexpr std::int64_t most_words = std::int64_t{1} << 30;
constexpr double mega = 1e6;
constexpr double giga = 1e9;
constexpr double milliseconds_per_second = 1e3;

struct PlanLmOptions : TrainLmOptions {
  std::int64_t vocabulary = 0;
  std::int64_t ranks = 1;
  std::int64_t top = 3;
  std::string machine;
  bool json = false;
};

using Cost = models::LanguageModelCost;

std::int64_t vocabulary_of(Context const& context, PlanLmOptions const& o) {
  if (o.tokens.empty() == (o.vocabulary == 0))
    runtime::throw_user("plan-lm: give either --tokens FILE or --vocabulary N");
  return o.vocabulary > 0 ? o.vocabulary : open_tokens(context, o.tokens).vocabulary().size();
}

/// Leaves out the grids whose arrays do not fit into the memory of a rank. Returns a line that says how many, or nothing. Throws
/// UserError if no grid is left.
std::string drop_what_does_not_fit(std::vector<Cost>& costs, pmm::Machine const& machine) {
  if (machine.memory.bytes == 0) return {};
  auto const least = std::ranges::min(costs, {}, &Cost::array_bytes).array_bytes;
  auto const dropped = std::erase_if(
      costs, [&](Cost const& cost) { return static_cast<double>(cost.array_bytes) > machine.memory.bytes; });
  if (costs.empty())
    runtime::throw_user("plan-lm: no grid fits into the {:.1f} GB of a rank of {}; the least is {:.1f} GB: "
                        "take more ranks, or --activation-checkpointing full",
                        machine.memory.bytes / giga, machine.name, static_cast<double>(least) / giga);
  return dropped == 0 ? std::string()
                      : fmt::format("left out, as a rank has {:.1f} GB: {} of all grids\n",
                                    machine.memory.bytes / giga, dropped);
}

std::string json_of(Cost const& cost, PlanLmOptions const& o, pmm::Machine const& machine) {
  nlohmann::ordered_json const line{
      {"grid", cost.shape.to_string()},      {"ranks", o.ranks},
      {"sent_bytes", cost.sent_bytes},       {"calls", cost.num_calls},
      {"array_bytes", cost.array_bytes},     {"machine", machine.name},
      {"seconds", cost.seconds.total()},     {"dense_seconds", cost.seconds.dense},
      {"pass_seconds", cost.seconds.passes}, {"call_seconds", cost.seconds.calls},
      {"bound", cost.seconds.bound()}};
  return line.dump() + "\n";
}

std::string line_of(Cost const& cost) {
  auto line = fmt::format("{:<14}{:>12.1f}{:>8}{:>11.3f}", cost.shape.to_string(),
                          static_cast<double>(cost.sent_bytes) / mega, cost.num_calls,
                          static_cast<double>(cost.array_bytes) / giga);
  auto const& seconds = cost.seconds;
  for (auto const term : {seconds.total(), seconds.dense, seconds.passes, seconds.communication()})
    line += fmt::format("{:>11.4g}", term * milliseconds_per_second);
  return line + "  " + seconds.bound() + "\n";
}

/// Flags that a training must repeat, as the user gave them.
std::string given_flags(Context const& context) {
  static constexpr std::array<std::string_view, 12> own{"config",  "force",   "json",  "log-level",
                                                        "machine", "metrics", "ranks", "timeout",
                                                        "tokens",  "top",     "trace", "vocabulary"};
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

std::string answer(Context const& context, PlanLmOptions const& o, pmm::Machine const& machine) {
  auto model = model_of(o);
  model.vocabulary = vocabulary_of(context, o);
  auto const sequences = sequences_of(o);
  auto costs = models::costs_of_language_model(static_cast<int>(o.ranks), model, sequences,
                                               optimizer_of(o, o.eval_every), machine);
  auto const dropped = drop_what_does_not_fit(costs, machine);
  costs.resize(std::min(costs.size(), static_cast<std::size_t>(o.top)));

  std::string text;
  if (o.json) {
    for (auto const& cost : costs)
      text += json_of(cost, o, machine);
    return text;
  }
  text =
      fmt::format("A {} of {} layers x {}, {} heads, a vocabulary of {}; {} sequences of {} tokens per step "
                  "on {} rank{}, fp32\n"
                  "MB sent: 10^6 bytes per step and rank; GB: 10^9 bytes of all arrays per rank\n"
                  "ms: of a step on the machine '{}', and of its dense products, passes over arrays and "
                  "calls\n\n"
                  "{:<14}{:>12}{:>8}{:>11}{:>11}{:>11}{:>11}{:>11}  {}\n",
                  o.arch, model.num_layers, model.hidden, model.num_heads, model.vocabulary,
                  sequences.global_batch, sequences.sequence, o.ranks, o.ranks == 1 ? "" : "s", machine.name,
                  "grid", "MB sent", "calls", "GB arrays", "ms", "dense", "passes", "calls", "bound by");
  for (auto const& cost : costs)
    text += line_of(cost);
  return text + dropped +
         fmt::format("\northant train-lm --tokens {} --grid {}{}     # on {} rank{}\n",
                     o.tokens.empty() ? "TOKENS.h5" : o.tokens, costs.front().shape.to_string(),
                     given_flags(context), o.ranks, o.ranks == 1 ? "" : "s");
}

int run(PlanLmOptions const& options, Context& context) {
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
  command->option("--ranks", o->ranks, "Number of ranks to plan for", whole_number(1, most_ranks));
  add_planned_options(*command, *o);
  command->begin_group("Planning");
  command->input("--machine", o->machine,
                 "Machine to plan for, by name (perlmutter, frontier, tuolumne, alps, h200-node, host) or "
                 ".toml file (bench machine writes one)");
  command->option("--top", o->top, "Grids to show", whole_number(1));
  command->flag("--json", o->json, "Print one JSON object per grid");
  command->set_needs_device(false);
  command->set_run([o](Context& context) {
    apply_preset(context, *o);
    return run(*o, context);
  });
  return command;
}

} // namespace orthant::cli
