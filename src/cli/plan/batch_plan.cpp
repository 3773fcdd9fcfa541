// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_options.hpp"

#include "cli/plan/planned_training.hpp"
#include "models/gnn/batches/batch_plan.hpp"
#include "sampling/vertex_sampler.hpp"

#include <fmt/ranges.h>
#include <optional>

namespace orthant::cli {
namespace {

using models::BatchCost;

/// Upper bound of step lists with --exact; more would take minutes.
constexpr std::int64_t most_exact_lists = 1'000'000;

models::BatchSizes sizes_of(BatchPlanQuestion const& question, PlanOptions const& o) {
  return models::sizes_of(question.batches, o.eval_every > 0);
}

/// Exact communication of the batches that train draws with these options.
class ExactEpochs {
 public:
  ExactEpochs(BatchPlanQuestion const& question, PlanOptions const& options)
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
    auto const& batches = question_.batches;
    sampling::VertexSampler const sampler({static_cast<std::uint64_t>(options_.seed), batches.batch_size,
                                           cost.shape.data, options_.accumulate, batches.train_fraction},
                                          facts.num_vertices, facts.split_sizes[0]);
    auto const needs_edges =
        models::SampledBatch::needs_edges(models::plan_network(facts, settings), settings);
    models::SampledBatch batch(self_, *question_.store, sampler, needs_edges);
    return sent_in_epoch(batch, sampler, 1, cost.shape, facts, settings, options_.accumulate);
  }

 private:
  BatchPlanQuestion const& question_;
  PlanOptions const& options_;
  runtime::Communicator self_;
};

/// Simulates an epoch as equal average steps, one after the other.
std::optional<pmm::SimulatedSeconds> simulate(BatchCost const& cost, models::NetworkSettings const& settings,
                                              BatchPlanQuestion const& question, PlanOptions const& options,
                                              pmm::Machine const& machine, Simulation& simulation) {
  auto const plan = models::plan_network(question.facts, settings);
  auto const list_of = [&](pmm::Coordinates const& coordinates) {
    return models::list_of_batches(cost.shape, coordinates, question.facts, plan, settings,
                                   sizes_of(question, options), question.optimizer);
  };
  auto const step = simulation.run(cost.shape, [&](pmm::SimulationSettings const& settings_of_run) {
    return pmm::simulate_step(cost.shape, list_of, machine, settings_of_run);
  });
  if (!step) return std::nullopt;
  return *step * static_cast<double>(cost.num_steps);
}

std::int64_t vertices_of_step(BatchCost const& cost, BatchPlanQuestion const& question) {
  return question.batches.batch_size * question.batches.num_accumulated * cost.shape.data;
}

nlohmann::ordered_json json_of(BatchCost const& cost, BatchPlanQuestion const& question,
                               PlanOptions const& options, pmm::Machine const& machine) {
  nlohmann::ordered_json line{{"mode", "minibatch"},
                              {"schedule", std::string(models::name_of(cost.schedule))},
                              {"grid", cost.shape.to_string()},
                              {"ranks", question.num_ranks},
                              {"vertices", question.facts.num_vertices},
                              {"nonzeros", question.facts.num_operator_entries()},
                              {"batch", question.batches.batch_size},
                              {"accumulate", options.accumulate},
                              {"effective_batch", vertices_of_step(cost, question)},
                              {"steps", cost.num_steps},
                              {"sent_bytes", cost.sent_bytes},
                              {"sent_bytes_are", options.exact ? "exact" : "about"},
                              {"calls", cost.num_calls},
                              {"array_bytes", cost.array_bytes},
                              {"machine", machine.name}};
  add_seconds(line, cost.seconds, Network::graph);
  return line;
}

std::string line_of(BatchCost const& cost, BatchPlanQuestion const& question) {
  return fmt::format("{:<9}{:<14}{:>8}{:>11}{:>12.1f}{:>9}{:>11.3f}{}\n", models::name_of(cost.schedule),
                     cost.shape.to_string(), cost.num_steps, vertices_of_step(cost, question),
                     static_cast<double>(cost.sent_bytes) / mega, cost.num_calls,
                     static_cast<double>(cost.array_bytes) / giga,
                     cells_of_seconds(cost.seconds, Network::graph));
}

std::string heading(BatchPlanQuestion const& question, PlanOptions const& options,
                    pmm::Machine const& machine) {
  return fmt::format(
      "Mini-batches of {} of {} vertices on {} rank{}, for each epoch\n"
      "batch: vertices of a step, over all data groups; MB sent: 10^6 bytes of the rank that sends most{};\n"
      "GB: 10^9 bytes of the rank that holds most; ms: on the machine '{}', without the making of batches\n\n"
      "{:<9}{:<14}{:>8}{:>11}{:>12}{:>9}{:>11}{}\n",
      question.batches.batch_size, question.facts.num_vertices, question.num_ranks,
      question.num_ranks == 1 ? "" : "s", options.exact ? ", exactly" : " on average", machine.name,
      "schedule", "grid", "steps", "batch", "MB sent", "calls", "GB arrays",
      headings_of_seconds(Network::graph));
}

} // namespace

std::string plan_batches(Context const& context, BatchPlanQuestion const& question,
                         PlanOptions const& options, pmm::Machine const& machine, Simulation& simulation) {
  auto const& facts = question.facts;
  auto const batch = question.batches.batch_size;
  if (options.exact && question.store == nullptr)
    runtime::throw_user("plan --exact draws the batches of a graph: give --graph graph.h5");
  if (batch > facts.num_vertices)
    runtime::throw_user("--batch {}: the graph has {} vertices, {} fewer; give --batch {} or less", batch,
                        facts.num_vertices, batch - facts.num_vertices, facts.num_vertices);
  auto text = options.json ? std::string() : heading(question, options, machine);
  std::string notes;
  std::optional<BatchCost> best;
  for (auto const schedule : question.schedules) {
    auto settings = question.settings;
    settings.schedule = schedule;
    auto const is_open = options.grid == "auto";
    auto costs = models::costs_of_batches(question.num_ranks, facts, settings, sizes_of(question, options),
                                          is_open ? options.least_width : 1, machine, question.optimizer);
    if (!is_open)
      std::erase_if(costs, [&](BatchCost const& cost) {
        return cost.shape != pmm::parse_grid(options.grid, question.num_ranks);
      });
    auto fault =
        fmt::format("no grid of {} ranks trains batches of {} vertices and keeps parts of {} columns "
                    "(--batch, --accumulate, --least-width)",
                    question.num_ranks, batch, options.least_width);
    if (!costs.empty()) fault.clear();
    if (!costs.empty() && !options.force_memory) {
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
    if (simulated && !options.json)
      notes += fmt::format("{} {} ", models::name_of(schedule), costs.front().shape.to_string()) +
               text_of(*simulated, costs.front().seconds.total());
    costs.resize(std::min(costs.size(), static_cast<std::size_t>(options.top)));
    for (auto& cost : costs) {
      std::optional<models::SentInEpoch> exact;
      if (options.exact) exact = ExactEpochs(question, options).of(cost);
      if (exact) {
        cost.sent_bytes = exact->most_sent_bytes;
        cost.num_calls = exact->num_calls;
      }
      if (!options.json) {
        text += line_of(cost, question);
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
  if (options.json) return text;
  return text + notes + train_command(context, options, best->schedule, best->shape);
}

} // namespace orthant::cli
