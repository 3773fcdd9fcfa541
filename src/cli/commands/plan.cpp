// SPDX-License-Identifier: Apache-2.0
//
// orthant plan: predicts the communication, memory and time of an epoch of training on a machine, on the best grids of a number of ranks.
// It reads the facts of a store, or only counts, and needs one process.

#include "cli/commands/subcommands.hpp"
#include "cli/options/collectives_option.hpp"
#include "cli/plan/plan_options.hpp"
#include "cli/plan/planned_training.hpp"
#include "cli/training/train_modes.hpp"
#include "cli/training/train_settings.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/network/counted_graph.hpp"
#include "models/gnn/network/grid_choice.hpp"

#include <algorithm>
#include <cctype>
#include <fmt/ranges.h>
#include <set>

namespace orthant::cli {
namespace {

/// Output of the command, built grid by grid.
class Answer {
 public:
  /// `store`: null if only counts of the graph are known.
  Answer(Context const& context, graph::StoreFacts const& facts, graph::GraphStore const* store,
         models::NetworkSettings settings, std::vector<std::int64_t> const& widths,
         PlanOptions const& options, int num_ranks, pmm::Machine const& machine, Simulation& simulation)
      : context_(context),
        simulation_(simulation),
        facts_(facts),
        store_(store),
        options_(options),
        num_ranks_(num_ranks),
        machine_(machine),
        settings_(std::move(settings)),
        optimizer_(training_of(options).optimizer),
        widths_(fmt::format("{}", fmt::join(widths, "-"))) {
    if (options.grid != "auto") require_full_graph_grid(options.grid, num_ranks);
  }

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
          title() + widths_, facts_.num_vertices, facts_.num_operator_entries(), num_ranks_,
          num_ranks_ == 1 ? "" : "s", text_of({message_formats_of(options_.comm_dtype).activations}),
          options_.operand_dtype == "fp32" ? "" : "; activations in " + options_.operand_dtype,
          has_machine()
              ? fmt::format("ms: of an epoch on the machine '{}', and of its sparse and dense products, "
                            "passes over arrays and calls\n",
                            machine_.name)
              : "",
          "schedule", "grid", "MB sent", "calls", "GB of A^", "GB arrays", "columns",
          has_machine() ? headings_of_seconds(Network::graph) : "");
    for (auto const schedule : schedules_of(options_, settings_)) {
      settings_.schedule = schedule;
      auto costs = costs_of_grids();
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
        return models::simulate_epoch(first, facts_, settings_, machine_, simulation, store_, optimizer_);
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

  [[nodiscard]] models::Exactness exactness_of(models::GridCost const& cost) const {
    auto settings = settings_;
    settings.schedule = cost.schedule;
    return models::exactness_without_counts(cost.shape, models::plan_network(facts_, settings), settings);
  }

  /// MB sent, with a sign if they are not exact; each sign is explained once.
  [[nodiscard]] std::string sent_of(models::GridCost const& cost) {
    auto const exactness = exactness_of(cost);
    auto const sign = exactness == models::Exactness::at_most ? "<=" : "~";
    if (exactness != models::Exactness::exact && signs_.insert(sign).second)
      notes_ +=
          exactness == models::Exactness::at_most
              ? "<=: at most, if all rows move; training moves those that blocks need where they are few "
                "(--gather)\n"
              : "~: on average over graphs of these counts\n";
    return fmt::format("{}{:.1f}", exactness == models::Exactness::exact ? "" : sign,
                       static_cast<double>(cost.sent_bytes) / mega);
  }

  [[nodiscard]] std::string line_of(models::GridCost const& cost) {
    auto line = fmt::format("{:<9}{:<14}{:>12}{:>7}{:>12.3f}{:>12.3f}{:>9}", models::name_of(cost.schedule),
                            cost.shape.to_string(), sent_of(cost), cost.num_calls,
                            static_cast<double>(cost.adjacency_bytes) / giga,
                            static_cast<double>(cost.array_bytes) / giga, cost.narrowest_part);
    if (has_machine()) line += cells_of_seconds(cost.seconds, Network::graph);
    return line + "\n";
  }

  /// Costs of --grid, or of all grids, best first.
  [[nodiscard]] std::vector<models::GridCost> costs_of_grids() const {
    if (options_.grid != "auto")
      return {models::cost_of_grid(pmm::parse_grid(options_.grid, num_ranks_), facts_, settings_, machine_,
                                   optimizer_)};
    return models::costs_of_grids(num_ranks_, facts_, settings_, options_.least_width, machine_,
                                  has_machine() ? models::GridOrder::by_seconds : models::GridOrder::by_bytes,
                                  optimizer_);
  }

  /// Removes the grids that need more memory than a rank of the machine has. Returns a note about them; empty if there are none.
  [[nodiscard]] std::string drop_what_does_not_fit(std::vector<models::GridCost>& costs) const {
    if (!has_machine() || options_.force_memory) return {};
    auto const left_out =
        pmm::leave_out_what_does_not_fit(costs, machine_.memory.bytes, &models::GridCost::peak_bytes);
    return text_of(left_out, machine_, costs.empty(), "take more ranks");
  }

  void consider(models::GridCost const& cost) {
    if (!best_ || cost.seconds.total() < best_->seconds.total()) best_ = cost;
  }

  /// Command line of the training with the least predicted time.
  [[nodiscard]] std::string command() const {
    if (!best_ || !has_machine() || options_.json) return {};
    return train_command(context_, options_, best_->schedule, best_->shape);
  }

  [[nodiscard]] pmm::StepPlan list_of_first_rank(models::GridCost const& cost) const {
    return models::list_of_rank(cost.shape, {}, facts_, models::plan_network(facts_, settings_), settings_,
                                optimizer_);
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
                                {"ranks", num_ranks_},
                                {"vertices", facts_.num_vertices},
                                {"nonzeros", facts_.num_operator_entries()},
                                {"widths", widths_},
                                {"comm_dtype", options_.comm_dtype},
                                {"operand_dtype", options_.operand_dtype},
                                {"sent_bytes", cost.sent_bytes},
                                {"sent_bytes_are", models::name_of(exactness_of(cost))},
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
                       num_ranks_, options_.least_width, options_.least_width);
  }

  /// Handles a schedule without a grid: throws UserError if no other schedule has one, otherwise adds a note.
  void refuse_or_note(models::Schedule schedule, std::string const& fault) {
    auto const is_last = schedule == schedules_of(options_, settings_).back();
    if (is_last && !best_) runtime::throw_user("schedule {}: {}", models::name_of(schedule), fault);
    note(schedule, fault);
  }

  void note(models::Schedule schedule, std::string const& fault) {
    if (!options_.json) notes_ += fmt::format("schedule {}: {}\n", models::name_of(schedule), fault);
  }

  [[nodiscard]] std::string title() const {
    if (options_.model == "sage") return fmt::format("GraphSAGE ({}) ", name_of(settings_.aggregator));
    if (options_.model == "graphconv") return fmt::format("GraphConv ({}) ", name_of(settings_.aggregator));
    if (options_.model == "gatv2") return "GATv2 ";
    auto name = options_.model;
    for (auto& letter : name)
      letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    if (models::traits_of(settings_.model, settings_.aggregator).has_steps())
      name += fmt::format(" ({} steps)", settings_.num_propagations);
    return name + " ";
  }

  Context const& context_;
  Simulation& simulation_;
  graph::StoreFacts const& facts_;
  graph::GraphStore const* store_;
  PlanOptions const& options_;
  int num_ranks_;
  pmm::Machine const& machine_;
  models::NetworkSettings settings_;
  models::OptimizerSettings optimizer_;
  std::optional<models::GridCost> best_;
  std::string widths_;
  std::set<std::string> signs_; // signs that have been explained
  std::string notes_;
  std::string tables_;
};

int run(PlanOptions const& options, Context& context) {
  auto const& world = context.world();
  auto settings = settings_of(options);
  if (auto const own = models::traits_of(settings.model, settings.aggregator).own;
      own && !own->is_listed() && world.is_root())
    context.log().warn(
        "--model {}: predictions include only the products with A^; its other operations are not listed",
        own->name);
  auto const store = open_store(context, options, settings);
  auto const facts = store ? store->facts() : facts_of_counts(options);
  auto const num_ranks = planned_ranks(options.ranks, options.grid, world);
  if (num_ranks > facts.num_vertices)
    runtime::throw_user("--ranks {}: the graph has {} vertices, {} fewer; give --ranks {} or less", num_ranks,
                        facts.num_vertices, num_ranks - facts.num_vertices, facts.num_vertices);
  auto const widths = widths_of(facts, options, settings);
  require_fitting_simulation(options.simulation, options.machine, num_ranks);
  auto const machine = machine_of(world, options.machine);
  Simulation simulation(context, options.simulation);
  auto const* const graph = store ? &*store : nullptr;
  // All ranks run this, so that a UserError is thrown on all of them.
  if (options.mode == "minibatch") {
    auto const shape_of_batches =
        pmm::parse_grid(options.grid, static_cast<int>(num_ranks)); // auto: one data group, as in train
    say(context, "{}",
        plan_batches(context,
                     {.facts = facts,
                      .store = graph,
                      .settings = settings,
                      .optimizer = training_of(options).optimizer,
                      .batches = mini_batches_of(options, shape_of_batches, facts),
                      .schedules = schedules_of(options, settings),
                      .num_ranks = static_cast<int>(num_ranks)},
                     options, machine, simulation));
  } else {
    say(context, "{}",
        Answer(context, facts, graph, settings, widths, options, static_cast<int>(num_ranks), machine,
               simulation)
            .text());
  }
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_plan() {
  auto command = std::make_unique<Command>(
      "plan", "Predict bytes, memory and time of training, and show the best grids for any number of ranks");
  auto const o = std::make_shared<PlanOptions>();
  add_options(*command, *o);
  command->set_needs_device(false);
  command->set_predicts_collectives();
  command->set_run([o](Context& context) {
    complete(context, *o);
    return run(*o, context);
  });
  return command;
}

} // namespace orthant::cli
