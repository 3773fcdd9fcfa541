// SPDX-License-Identifier: Apache-2.0
#include "cli/report/prediction.hpp"

#include "cli/lm/lm_files.hpp"
#include "cli/lm/train_lm_options.hpp"
#include "cli/presets/graph_presets.hpp"
#include "cli/training/memory_check.hpp"
#include "cli/training/train_full.hpp"
#include "cli/training/train_run.hpp"
#include "models/gnn/network/grid_cost.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/network/network_arrays.hpp"
#include "models/gnn/plan/counted_graph.hpp"
#include "models/gnn/plan/network_step.hpp"
#include "models/lm/training/language_model.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/machine/process_memory.hpp"

#include <type_traits>

namespace orthant::cli {
namespace {

/// The options that the point's arguments and preset give, as training would read them.
template<class Options>
Options options_of(Context const& context, StudyPoint const& point) {
  Options options;
  Command command(point.command, "");
  if constexpr (std::is_same_v<Options, TrainOptions>) add_preset_option(command, options);
  add_options(command, options);
  command.add_common_options();
  std::ignore = command.parse({point.arguments.begin() + 1, point.arguments.end()});
  runtime::MetricsWriter metrics;
  Context own{context.environment, metrics, runtime::resolved_json(command.resolved(), command.description()),
              false};
  apply_preset(own, options);
  return options;
}

void add_seconds(pmm::StepSeconds const& seconds, PointPrediction& prediction) {
  if (seconds.total() <= prediction.seconds) return; // of the rank that takes longest
  prediction.seconds = seconds.total();
  prediction.sparse = seconds.sparse;
  prediction.dense = seconds.dense;
  prediction.passes = seconds.passes;
  prediction.calls = seconds.communication();
}

void add_memory(std::int64_t bytes, PointPrediction& prediction) {
  prediction.memory_bytes = std::max(prediction.memory_bytes, static_cast<double>(bytes));
}

/// Entries of a graph that is read to count which rows move: some ten seconds.
constexpr std::int64_t most_counted_entries = std::int64_t{1} << 28;

/// Says what the sent bytes are, and why they are not exact.
void judge(PointPrediction& prediction, models::Exactness sent_are, bool is_counted) {
  prediction.sent_are = sent_are;
  if (sent_are == models::Exactness::exact) return;
  prediction.reason = is_counted ? "links are drawn at random"
                                 : fmt::format("the graph has more than {} non-zeros, so it is not counted "
                                               "which rows move",
                                               most_counted_entries);
}

std::optional<PointPrediction> predict_epoch(Context const& context, StudyPoint const& point,
                                             PointResult const& result, pmm::Machine const& machine) {
  auto const options = options_of<TrainOptions>(context, point);
  auto settings = model_of(options);
  settings.schedule = models::parse_schedule(result.schedule);
  if (result.is_pruned) settings.gather = pmm::Gather::all;
  auto const shape = pmm::parse_grid(result.grid, static_cast<int>(result.ranks));
  if (options.compute_dtype != "fp32") return std::nullopt; // constants of machines are of fp32
  runtime::MappedArrays const mapped; // one graph after another is made: each from the same start
  auto opened = open_measured_graph(context.world(), options);
  auto& store = opened.store;
  models::use_operator(store, settings);
  auto const plan = models::plan_network(store, settings);
  auto const optimizer = optimizer_of(options, options.eval_every);
  std::optional<models::CountedGraph> counted;
  if (store.facts().num_operator_entries() <= most_counted_entries)
    counted.emplace(store, shape, plan, settings);
  PointPrediction prediction;
  judge(prediction, counted ? counted->exactness() : models::exactness_without_counts(shape, plan, settings),
        counted.has_value());
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    auto const place = pmm::coordinates_of(shape, rank);
    auto const traits =
        counted ? counted->traits_of(place) : models::traits_of(store.facts(), shape, place, plan, settings);
    pmm::StepPlan step(shape, place, sizeof(float));
    models::plan_epoch(step, plan, settings, traits, optimizer);
    models::plan_full_graph_arrays(step, store.facts(), plan, settings, traits, optimizer);
    prediction.sent_bytes += static_cast<double>(models::sent_bytes_of(step));
    add_seconds(pmm::seconds_of(step, machine), prediction);
    add_memory(peak_with_graph({.arrays = pmm::bytes_held(step),
                                .loading = pmm::peak_bytes(step),
                                .messages = models::message_bytes(step),
                                .products = models::product_library_bytes<float>(step) +
                                            models::operand_copy_bytes(step, plan, settings, traits)},
                               opened.in_memory),
               prediction);
  }
  if (result.is_pruned) {
    prediction.sent_are = models::Exactness::at_most;
    prediction.reason = "training leaves out rows (--prune)";
    prediction.memory_bytes = 0; // arrays of all rows beside those that are kept
  }
  return prediction;
}

std::optional<PointPrediction> predict_step(Context const& context, StudyPoint const& point,
                                            PointResult const& result, pmm::Machine const& machine) {
  auto const options = options_of<TrainLmOptions>(context, point);
  auto model = model_of(options);
  model.vocabulary = open_tokens(context, options.tokens).vocabulary().size();
  auto const sequences = sequences_of(options);
  if (options.compute_dtype != "fp32") return std::nullopt;
  auto const optimizer = optimizer_of(options, options.eval_every);
  auto const shape = pmm::parse_grid(result.grid, static_cast<int>(result.ranks));
  PointPrediction prediction;
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    auto const place = pmm::coordinates_of(shape, rank);
    auto const plan = models::plan_sequences(shape, place, model, sequences);
    pmm::StepPlan step(shape, place, sizeof(float));
    models::plan_language_model_step(step, plan, sequences, optimizer);
    prediction.sent_bytes += static_cast<double>(models::sent_bytes_of(step));
    add_seconds(pmm::seconds_of(step, machine), prediction);
    add_memory(models::estimate_memory<float>(shape, place, plan, sequences, optimizer).peak(), prediction);
  }
  prediction.sent_are = models::Exactness::exact;
  if (model.experts.num_experts > 0 && shape.num_ranks() > 1) {
    prediction.sent_are = models::Exactness::about;
    prediction.reason = "the router decides which tokens move";
  }
  return prediction;
}

} // namespace

std::optional<PointPrediction> predict(Context const& context, Study const& study, StudyPoint const& point,
                                       PointResult const& result) {
  // What is emulated is predicted by the same constants.
  auto const& name = result.emulated.empty() ? study.jobs.predict : study.jobs.emulate;
  if (name.empty() || point.mode == "minibatch") return std::nullopt;
  auto const machine = machine_of(context.world(), name);
  auto prediction = point.command == "train" ? predict_epoch(context, point, result, machine)
                                             : predict_step(context, point, result, machine);
  if (prediction) prediction->machine = machine.name;
  return prediction;
}

} // namespace orthant::cli
