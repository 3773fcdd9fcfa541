// SPDX-License-Identifier: Apache-2.0
//
// orthant plan: what an epoch of full-graph training sends and holds, and how long it takes on a machine, on the best
// grids of a number of ranks. It reads the facts of a store, or counts alone, and needs one process.

#include "cli/commands/plan_options.hpp"
#include "cli/commands/subcommands.hpp"
#include "cli/options/counts.hpp"
#include "cli/plan/cost_columns.hpp"
#include "cli/training/train_run.hpp"
#include "graph/largest_graph.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/grid_cost.hpp"
#include "models/gnn/simulated_epoch.hpp"

#include <algorithm>
#include <cctype>
#include <fmt/ranges.h>

namespace orthant::cli {
namespace {

constexpr std::int64_t most_columns = std::int64_t{1} << 20;
constexpr std::int64_t most_ranks = std::int64_t{1} << 20;

/// What was asked, answered grid by grid.
class Answer {
 public:
  /// `store`: null if the graph is known by its counts alone.
  Answer(graph::StoreFacts const& facts, graph::GraphStore const* store,
         std::vector<std::int64_t> const& widths, PlanOptions const& options, pmm::Machine const& machine,
         Simulation& simulation)
      : simulation_(simulation),
        facts_(facts),
        store_(store),
        options_(options),
        machine_(machine),
        settings_(settings_of(widths, options)),
        widths_(fmt::format("{}", fmt::join(widths, "-"))) {}

  [[nodiscard]] std::string text() {
    std::string text;
    if (!options_.json)
      text = fmt::format(
          "A {} of {} vertices and {} non-zeros on {} rank{}; the wire carries {}{}\n"
          "MB sent: 10^6 bytes per epoch of the rank that sends most; GB: 10^9 bytes of the "
          "rank that holds most;\n"
          "columns: of the narrowest block that A^ is multiplied by\n"
          "{}\n"
          "{:<9}{:<14}{:>12}{:>7}{:>12}{:>12}{:>9}{}\n",
          title() + widths_, facts_.num_vertices, facts_.num_operator_entries(), options_.ranks,
          options_.ranks == 1 ? "" : "s", options_.comm_dtype,
          options_.operand_dtype == "fp32" ? "" : "; activations in " + options_.operand_dtype,
          has_machine()
              ? fmt::format("ms: of an epoch on the machine '{}', and of its sparse and dense products, "
                            "passes over arrays and calls\n",
                            machine_.name)
              : "",
          "schedule", "grid", "MB sent", "calls", "GB of A^", "GB arrays", "columns",
          has_machine() ? headings_of_seconds(Network::graph) : "");
    for (auto const schedule : schedules_of(options_)) {
      settings_.schedule = schedule;
      auto costs = models::costs_of_grids(
          static_cast<int>(options_.ranks), facts_, settings_, options_.least_width, machine_,
          has_machine() ? models::GridOrder::by_seconds : models::GridOrder::by_bytes);
      if (costs.empty()) {
        refuse_or_note(schedule, narrow_grids());
        continue;
      }
      if (auto const fault = drop_what_does_not_fit(costs); !fault.empty()) {
        if (costs.empty()) {
          refuse_or_note(schedule, fault);
          continue;
        }
        note(schedule, fault);
      }
      consider(costs.front());
      auto const& first = costs.front().shape;
      auto const simulated = simulation_.run(first, [&](pmm::SimulationSettings const& simulation) {
        return models::simulate_epoch(first, facts_, settings_, machine_, simulation, store_);
      });
      if (std::ssize(costs) > options_.top) costs.resize(static_cast<std::size_t>(options_.top));
      for (auto const& cost : costs)
        text +=
            options_.json ? json_of(cost, &cost == &costs.front() ? simulated : std::nullopt) : line_of(cost);
      if (simulated && !options_.json)
        notes_ += fmt::format("{} {} ", models::name_of(schedule), costs.front().shape.to_string()) +
                  text_of(*simulated, costs.front().seconds.total());
      if (options_.arrays && !options_.json) tables_ += arrays_of(costs.front());
    }
    return text + notes_ + command() + tables_;
  }

 private:
  [[nodiscard]] bool has_machine() const { return !options_.machine.empty(); }

  [[nodiscard]] std::string line_of(models::GridCost const& cost) const {
    auto line =
        fmt::format("{:<9}{:<14}{:>12.1f}{:>7}{:>12.3f}{:>12.3f}{:>9}", models::name_of(cost.schedule),
                    cost.shape.to_string(), static_cast<double>(cost.sent_bytes) / mega, cost.num_calls,
                    static_cast<double>(cost.adjacency_bytes) / giga,
                    static_cast<double>(cost.array_bytes) / giga, cost.narrowest_part);
    if (has_machine()) line += cells_of_seconds(cost.seconds, Network::graph);
    return line + "\n";
  }

  /// Grids whose arrays a rank of the machine cannot hold are left out. What was left out; empty: none was.
  [[nodiscard]] std::string drop_what_does_not_fit(std::vector<models::GridCost>& costs) const {
    if (!has_machine()) return {};
    auto const left_out =
        pmm::leave_out_what_does_not_fit(costs, machine_.memory.bytes, &models::GridCost::peak_bytes);
    return text_of(left_out, machine_, costs.empty(), "take more ranks");
  }

  void consider(models::GridCost const& cost) {
    if (!best_ || cost.seconds.total() < best_->seconds.total()) best_ = cost;
  }

  /// What to run, by the least time.
  [[nodiscard]] std::string command() const {
    if (!best_ || !has_machine() || options_.json) return {};
    return fmt::format("\northant train --grid {} --schedule {} {}     # on {} ranks\n",
                       best_->shape.to_string(), models::name_of(best_->schedule),
                       flags_of_graph(options_, settings_), options_.ranks);
  }

  [[nodiscard]] pmm::StepPlan list_of_first_rank(models::GridCost const& cost) const {
    return models::list_of_rank(cost.shape, {}, facts_, models::plan_gcn(facts_, settings_), settings_);
  }

  static nlohmann::ordered_json json_of(models::BytesByLabel const& arrays) {
    auto table = nlohmann::ordered_json::object();
    for (auto const& [label, bytes] : arrays)
      table[label] = bytes;
    return table;
  }

  [[nodiscard]] std::string json_of(models::GridCost const& cost,
                                    std::optional<pmm::SimulatedSeconds> const& simulated) const {
    nlohmann::ordered_json line{{"schedule", std::string(models::name_of(cost.schedule))},
                                {"grid", cost.shape.to_string()},
                                {"ranks", options_.ranks},
                                {"vertices", facts_.num_vertices},
                                {"nonzeros", facts_.num_operator_entries()},
                                {"widths", widths_},
                                {"comm_dtype", options_.comm_dtype},
                                {"operand_dtype", options_.operand_dtype},
                                {"sent_bytes", cost.sent_bytes},
                                {"calls", cost.num_calls},
                                {"pass_bytes", cost.pass_bytes},
                                {"adjacency_bytes", cost.adjacency_bytes},
                                {"array_bytes", cost.array_bytes},
                                {"loading_bytes", cost.loading_bytes},
                                {"narrowest_part", cost.narrowest_part},
                                {"machine", machine_.name}};
    add_seconds(line, cost.seconds, Network::graph);
    if (simulated) add_to(line, *simulated);
    if (options_.arrays) {
      auto const step = list_of_first_rank(cost);
      line["arrays"] = json_of(models::arrays_by_label(step));
      line["loading_arrays"] = json_of(models::loading_arrays_by_label(step));
    }
    return line.dump() + "\n";
  }

  [[nodiscard]] std::string arrays_of(models::GridCost const& cost) const {
    auto text = fmt::format("\narrays of rank 0, schedule {} on {}, in 10^9 bytes\n",
                            models::name_of(cost.schedule), cost.shape.to_string());
    auto const add = [&](models::BytesByLabel const& arrays) {
      for (auto const& [label, bytes] : arrays)
        text += fmt::format("{:>12.6f}  {}\n", static_cast<double>(bytes) / giga, label);
    };
    auto const step = list_of_first_rank(cost);
    add(models::arrays_by_label(step));
    text += "of single operations, while the graph is read\n";
    add(models::loading_arrays_by_label(step));
    return text;
  }

  [[nodiscard]] std::string narrow_grids() const {
    return fmt::format("no grid of {} ranks keeps parts of {} columns; ask for less than --least-width {}",
                       options_.ranks, options_.least_width, options_.least_width);
  }

  /// A schedule without a grid: a mistake, if no other is left.
  void refuse_or_note(models::Schedule schedule, std::string const& fault) {
    auto const is_last = schedule == schedules_of(options_).back();
    if (is_last && !best_) runtime::throw_user("schedule {}: {}", models::name_of(schedule), fault);
    note(schedule, fault);
  }

  void note(models::Schedule schedule, std::string const& fault) {
    if (!options_.json) notes_ += fmt::format("schedule {}: {}\n", models::name_of(schedule), fault);
  }

  [[nodiscard]] std::string title() const {
    if (options_.model == "sage") return fmt::format("GraphSAGE ({}) ", options_.aggregator);
    if (options_.model == "gatv2") return "GATv2 ";
    auto name = options_.model;
    for (auto& letter : name)
      letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    if (settings_.model == models::Model::sgc || settings_.model == models::Model::appnp)
      name += fmt::format(" ({} steps)", settings_.num_propagations);
    return name + " ";
  }

  Simulation& simulation_;
  graph::StoreFacts const& facts_;
  graph::GraphStore const* store_;
  PlanOptions const& options_;
  pmm::Machine const& machine_;
  models::GcnSettings settings_;
  std::optional<models::GridCost> best_;
  std::string widths_;
  std::string notes_;
  std::string tables_;
};

int run(PlanOptions const& options, Context& context) {
  auto const& world = context.world();
  require_fitting(options);
  std::optional<graph::GraphStore> store;
  if (!options.graph.empty()) store = open_store(world, options);
  auto facts = store ? store->facts() : facts_of_counts(options);
  if (options.ranks > facts.num_vertices)
    runtime::throw_user("--ranks {}: the graph has {} vertices, {} fewer; give --ranks {} or less",
                        options.ranks, facts.num_vertices, options.ranks - facts.num_vertices,
                        facts.num_vertices);
  auto const widths = widths_of(facts, options);
  facts.num_features = widths.front();
  facts.num_classes = widths.back();
  if (options.trainable_features && facts.feature_kind == graph::FeatureKind::sparse)
    runtime::throw_user("{}: sparse features cannot be trained; leave out --trainable-features",
                        options.graph);
  require_fitting_simulation(options.simulation, options.machine, options.ranks);
  auto const machine = machine_of(world, options.machine);
  Simulation simulation(context, options.simulation);
  if (options.mode == "minibatch") {
    if (options.arrays)
      runtime::throw_user("plan: --arrays is of full graphs; leave it out with --mode minibatch");
    auto settings = settings_of(widths, options);
    settings.gather = pmm::parse_gather(options.gather);
    BatchPlanQuestion const question{.facts = facts,
                                     .store = store ? &*store : nullptr,
                                     .settings = settings,
                                     .schedules = schedules_of(options),
                                     .num_ranks = static_cast<int>(options.ranks),
                                     .least_width = options.least_width,
                                     .num_shown = static_cast<std::size_t>(options.top),
                                     .is_json = options.json,
                                     .flags_of_graph = flags_of_graph(options, settings)};
    say(context, "{}", plan_batches(question, options, machine, simulation));
    return runtime::exit_done;
  }
  say(context, "{}",
      Answer(facts, store ? &*store : nullptr, widths, options, machine, simulation)
          .text()); // every rank answers, so that all refuse alike
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_plan() {
  auto command = std::make_unique<Command>(
      "plan", "Show what training would send and hold on the best grids of any number of ranks");
  auto const o = std::make_shared<PlanOptions>();
  command->input("--graph", o->graph, "Store to plan for; or give its counts");
  command->option("--vertices", o->vertices, "Vertices of the graph", whole_number(1, graph::most_vertices));
  command->option("--nonzeros", o->nonzeros, "Non-zeros of A^, with a self loop of every vertex",
                  whole_number(1, graph::most_edges));
  command->option("--symmetric", o->symmetric, "Whether A is its own transpose: yes or no",
                  one_of({"yes", "no"}));
  command->option("--ranks", o->ranks, "Number of ranks to plan for", whole_number(1, most_ranks));
  command->begin_group("Model");
  command->option("--widths", o->widths,
                  "Widths from features to classes, such as 100-128-128-47 (with --graph 128 hidden columns "
                  "twice, unless given)");
  add_model_options(*command, *o);
  add_operator_options(*command, o->normalize, o->self_loops, "as the store was made, or as --model says");
  command->option("--norm", o->norm, "Normalisation in each hidden layer: layer, batch, rms or none",
                  one_of({"layer", "batch", "rms", "none"}));
  command->flag("--residual", o->residual,
                "Add each layer's input to its output where they are equally wide");
  command->option("--dropout", o->dropout, "Probability that an activation is dropped", in_range(0, 0.999));
  command->option("--edge-dropout", o->edge_dropout, "Probability that an edge of A^ is dropped in a step",
                  in_range(0, 0.999));
  command->flag("--trainable-features", o->trainable_features, "Learn the input features, too");
  add_options(*command, *o);
  command->begin_group("Planning");
  command->option("--schedule", o->schedule, "pmm3d, rows or all of them", one_of({"pmm3d", "rows", "all"}));
  command->option("--comm-dtype", o->comm_dtype, "Numbers on the wire: fp32, bf16 or fp16",
                  one_of({"fp32", "bf16", "fp16"}));
  command->option("--operand-dtype", o->operand_dtype, "What activations are held in: fp32, bf16 or fp16",
                  one_of({"fp32", "bf16", "fp16"}));
  command->option(
      "--least-width", o->least_width,
      "Least columns per rank of the widest aggregation: grids that split it further are left out",
      whole_number(1, most_columns));
  command->input("--machine", o->machine,
                 "Machine to plan for, by name (perlmutter, frontier, tuolumne, alps, h200-node, host) or "
                 ".toml file (bench "
                 "machine writes one): grids are ordered by seconds, and what does not fit is left out");
  add_simulation_options(*command, o->simulation, "an epoch on the best grid of each schedule");
  command->option("--top", o->top, "Grids to show for each schedule", whole_number(1));
  command->flag("--arrays", o->arrays, "Also show the arrays of the best grids, added up by label");
  command->flag("--json", o->json, "Print one JSON object per grid");
  command->set_needs_device(false);
  command->set_run([o](Context& context) { return run(*o, context); });
  return command;
}

} // namespace orthant::cli
