// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/batch_plan.hpp"

#include "cli/plan/cost_columns.hpp"
#include "graph/largest_graph.hpp"
#include "models/batches/batch_cost.hpp"
#include "models/batches/sampled_batch.hpp"
#include "sampling/vertex_sampler.hpp"

#include <fmt/ranges.h>
#include <optional>

namespace orthant::cli {
namespace {

using models::BatchCost;

/// Lists of exact steps: more would take minutes.
constexpr std::int64_t most_exact_lists = 1'000'000;

models::BatchSizes sizes_of(BatchPlanOptions const& o) {
  return {.num_vertices = o.batch, .num_accumulated = o.accumulate, .has_full_graph = o.eval_every > 0};
}

/// Of the batches that train draws with these options.
class ExactEpochs {
 public:
  ExactEpochs(BatchPlanQuestion const& question, BatchPlanOptions const& options)
      : question_(question),
        options_(options),
        self_(MPI_COMM_SELF, "self") {}

  [[nodiscard]] models::SentInEpoch of(BatchCost const& cost) {
    auto const num_lists = cost.shape.num_ranks() * cost.num_steps * options_.accumulate;
    if (num_lists > most_exact_lists)
      runtime::throw_user(
          "--exact lists each batch on each rank, {} lists on the grid {}, and at most {}: leave it out, "
          "or give a larger --batch",
          num_lists, cost.shape.to_string(), most_exact_lists);
    auto settings = question_.settings;
    settings.schedule = cost.schedule;
    auto const& facts = question_.facts;
    sampling::VertexSampler const sampler({static_cast<std::uint64_t>(options_.seed), options_.batch,
                                           cost.shape.data, options_.accumulate, std::nullopt},
                                          facts.num_vertices, facts.split_sizes[0]);
    auto const moves_needed = cost.schedule == models::Schedule::rows && settings.gather != pmm::Gather::all;
    models::SampledBatch batch(self_, *question_.store, sampler, moves_needed);
    return sent_in_epoch(batch, sampler, 1, cost.shape, facts, settings, options_.accumulate);
  }

 private:
  BatchPlanQuestion const& question_;
  BatchPlanOptions const& options_;
  runtime::Communicator self_;
};

/// Average steps of an epoch, one after the other.
std::optional<pmm::SimulatedSeconds> simulate(BatchCost const& cost, models::GcnSettings const& settings,
                                              BatchPlanQuestion const& question,
                                              BatchPlanOptions const& options, pmm::Machine const& machine,
                                              Simulation& simulation) {
  auto const plan = models::plan_gcn(question.facts, settings);
  auto const list_of = [&](pmm::Coordinates const& coordinates) {
    return models::list_of_batches(cost.shape, coordinates, question.facts, plan, settings,
                                   sizes_of(options));
  };
  auto const step = simulation.run(cost.shape, [&](pmm::SimulationSettings const& settings_of_run) {
    return pmm::simulate_step(cost.shape, list_of, machine, settings_of_run);
  });
  if (!step) return std::nullopt;
  return *step * static_cast<double>(cost.num_steps);
}

nlohmann::ordered_json json_of(BatchCost const& cost, BatchPlanQuestion const& question,
                               BatchPlanOptions const& options, pmm::Machine const& machine) {
  nlohmann::ordered_json line{{"mode", "minibatch"},
                              {"schedule", std::string(models::name_of(cost.schedule))},
                              {"grid", cost.shape.to_string()},
                              {"ranks", question.num_ranks},
                              {"vertices", question.facts.num_vertices},
                              {"nonzeros", question.facts.num_operator_entries()},
                              {"batch", options.batch},
                              {"accumulate", options.accumulate},
                              {"effective_batch", options.batch * options.accumulate * cost.shape.data},
                              {"steps", cost.num_steps},
                              {"sent_bytes", cost.sent_bytes},
                              {"calls", cost.num_calls},
                              {"array_bytes", cost.array_bytes},
                              {"machine", machine.name}};
  add_seconds(line, cost.seconds, Network::graph);
  return line;
}

std::string line_of(BatchCost const& cost, BatchPlanOptions const& options) {
  return fmt::format(
      "{:<9}{:<14}{:>8}{:>11}{:>12.1f}{:>9}{:>11.3f}{}\n", models::name_of(cost.schedule),
      cost.shape.to_string(), cost.num_steps, options.batch * options.accumulate * cost.shape.data,
      static_cast<double>(cost.sent_bytes) / mega, cost.num_calls,
      static_cast<double>(cost.array_bytes) / giga, cells_of_seconds(cost.seconds, Network::graph));
}

std::string heading(BatchPlanQuestion const& question, BatchPlanOptions const& options,
                    pmm::Machine const& machine) {
  return fmt::format(
      "Mini-batches of {} of {} vertices on {} rank{}, for each epoch\n"
      "batch: vertices of a step, over all data groups; MB sent: 10^6 bytes of the rank that sends most{};\n"
      "GB: 10^9 bytes of the rank that holds most; ms: on the machine '{}', without the making of batches\n\n"
      "{:<9}{:<14}{:>8}{:>11}{:>12}{:>9}{:>11}{}\n",
      options.batch, question.facts.num_vertices, question.num_ranks, question.num_ranks == 1 ? "" : "s",
      options.exact ? ", exactly" : " on average", machine.name, "schedule", "grid", "steps", "batch",
      "MB sent", "calls", "GB arrays", headings_of_seconds(Network::graph));
}

std::string command(BatchCost const& cost, BatchPlanQuestion const& question,
                    BatchPlanOptions const& options) {
  auto flags = fmt::format("--mode minibatch --batch {} --grid {} --schedule {}", options.batch,
                           cost.shape.to_string(), models::name_of(cost.schedule));
  if (options.accumulate > 1) flags += fmt::format(" --accumulate {}", options.accumulate);
  if (options.gather != "auto") flags += " --gather " + options.gather;
  if (options.eval_every != BatchPlanOptions().eval_every)
    flags += fmt::format(" --eval-every {}", options.eval_every);
  if (options.seed != 0) flags += fmt::format(" --seed {}", options.seed);
  return fmt::format("\northant train {} {}     # on {} rank{}\n", flags, question.flags_of_graph,
                     question.num_ranks, question.num_ranks == 1 ? "" : "s");
}

} // namespace

void add_options(Command& command, BatchPlanOptions& o) {
  command.begin_group("Mini-batch");
  command.option("--mode", o.mode,
                 "full (graph) or minibatch: seconds of an epoch on grids with data groups, too",
                 one_of({"full", "minibatch"}));
  command.option("--batch", o.batch, "Vertices for each group and batch, drawn uniformly",
                 whole_number(2, graph::most_vertices));
  command.option("--accumulate", o.accumulate, "Batches a step", whole_number(1, graph::most_vertices));
  command.option(
      "--gather", o.gather,
      "Rows that move between owners of vertices: all, needed (as many as in a random graph), or auto",
      one_of({"auto", "all", "needed"}));
  command.option("--eval-every", o.eval_every,
                 "Epochs between evaluations, which hold the whole graph as well; 0 for never",
                 whole_number(0, most_epochs));
  command.flag("--exact", o.exact,
               "Count what the batches of epoch 1 send on every rank, in place of the mean (needs --graph)");
  command.option("--seed", o.seed, "Seed that these batches are drawn with", whole_number(0));
}

void require_fitting(BatchPlanOptions const& o) {
  if (o.mode == "minibatch") {
    if (o.batch == 0) runtime::throw_user("plan --mode minibatch: give --batch, the vertices of a batch");
    return;
  }
  BatchPlanOptions const usual;
  for (auto const& [option, is_given] : {std::pair("--batch", o.batch != usual.batch),
                                         {"--accumulate", o.accumulate != usual.accumulate},
                                         {"--gather", o.gather != usual.gather},
                                         {"--eval-every", o.eval_every != usual.eval_every},
                                         {"--exact", o.exact},
                                         {"--seed", o.seed != usual.seed}})
    if (is_given)
      runtime::throw_user("plan: {} is of mini-batches; give --mode minibatch, too, or leave it out", option);
}

std::string plan_batches(BatchPlanQuestion const& question, BatchPlanOptions const& options,
                         pmm::Machine const& machine, Simulation& simulation) {
  auto const& facts = question.facts;
  if (question.settings.trains_features)
    runtime::throw_user(
        "plan --mode minibatch: batches do not train features; leave out --trainable-features");
  if (options.exact && question.store == nullptr)
    runtime::throw_user("plan --exact draws the batches of a graph: give --graph graph.h5");
  if (options.batch > facts.num_vertices)
    runtime::throw_user("--batch {}: the graph has {} vertices, {} fewer; give --batch {} or less",
                        options.batch, facts.num_vertices, options.batch - facts.num_vertices,
                        facts.num_vertices);
  auto text = question.is_json ? std::string() : heading(question, options, machine);
  std::string notes;
  std::optional<BatchCost> best;
  for (auto const schedule : question.schedules) {
    auto settings = question.settings;
    settings.schedule = schedule;
    auto costs = models::costs_of_batches(question.num_ranks, facts, settings, sizes_of(options),
                                          question.least_width, machine);
    auto fault =
        fmt::format("no grid of {} ranks trains batches of {} vertices and keeps parts of {} columns "
                    "(--batch, --accumulate, --least-width)",
                    question.num_ranks, options.batch, question.least_width);
    if (!costs.empty()) {
      auto const left_out =
          pmm::leave_out_what_does_not_fit(costs, machine.memory.bytes, &BatchCost::array_bytes);
      fault = text_of(left_out, machine, costs.empty(), "take more ranks, or --eval-every 0");
    }
    if (costs.empty() && !best && schedule == question.schedules.back())
      runtime::throw_user("schedule {}: {}", models::name_of(schedule), fault);
    if (!fault.empty()) notes += fmt::format("schedule {}: {}\n", models::name_of(schedule), fault);
    if (costs.empty()) continue;
    if (!best || costs.front().seconds.total() < best->seconds.total()) best = costs.front();
    auto const simulated = simulate(costs.front(), settings, question, options, machine, simulation);
    if (simulated && !question.is_json)
      notes += fmt::format("{} {} ", models::name_of(schedule), costs.front().shape.to_string()) +
               text_of(*simulated, costs.front().seconds.total());
    costs.resize(std::min(costs.size(), question.num_shown));
    for (auto& cost : costs) {
      std::optional<models::SentInEpoch> exact;
      if (options.exact) exact = ExactEpochs(question, options).of(cost);
      if (exact) {
        cost.sent_bytes = exact->most_sent_bytes;
        cost.num_calls = exact->num_calls;
      }
      if (!question.is_json) {
        text += line_of(cost, options);
        continue;
      }
      auto line = json_of(cost, question, options, machine);
      if (exact) {
        line["comm_bytes_of_all"] = exact->comm_bytes;
        line["sent_bytes_of_all"] = exact->sent_bytes;
      }
      if (simulated && &cost == &costs.front()) add_to(line, *simulated);
      text += line.dump() + "\n";
    }
  }
  if (question.is_json) return text;
  return text + notes + command(*best, question, options);
}

} // namespace orthant::cli
