// SPDX-License-Identifier: Apache-2.0
#include "cli/report/point_result.hpp"

#include "cli/lm/lm_files.hpp"
#include "cli/lm/train_lm_options.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/train_modes.hpp"
#include "cli/training/train_options.hpp"
#include "cli/training/train_settings.hpp"
#include "models/gnn/network/grid_choice.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/network/network_arrays.hpp"
#include "models/gnn/plan/network_step.hpp"
#include "models/lm/training/language_model.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/error.hpp"
#include "runtime/machine/process_memory.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <type_traits>

namespace orthant::cli {
namespace {

using nlohmann::json, nlohmann::ordered_json, runtime::throw_user;

/// Events of a run, in order.
std::vector<json> read_events(std::string const& metrics, std::filesystem::path const& path) {
  std::istringstream lines(metrics);
  std::vector<json> events;
  for (std::string line; std::getline(lines, line);) {
    auto event = json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("event"))
      throw_user("'{}' is no file of metrics", path.string());
    events.push_back(std::move(event));
  }
  if (events.empty() || events.back().at("event") != "done")
    throw_user("'{}' has no line of the event \"done\": it is not the metrics of a whole run; delete it, and "
               "submit its "
               "point again",
               path.string());
  return events;
}

PointResult settings_of(StudyPoint const& point) {
  PointResult result;
  result.key = point.key;
  result.experiment = point.experiment;
  result.curve = point.curve;
  result.command = point.command;
  result.data = point.data;
  result.mode = point.mode;
  result.schedule = point.schedule;
  result.grid = point.grid;
  result.is_weak = point.is_weak;
  result.ranks = point.ranks;
  result.repeat = point.repeat;
  return result;
}

} // namespace

double quantile_of(std::vector<double> numbers, double share) {
  std::ranges::sort(numbers);
  auto const place = share * static_cast<double>(numbers.size() - 1);
  auto const lower = static_cast<std::size_t>(place);
  auto const upper = std::min(lower + 1, numbers.size() - 1);
  return numbers[lower] + (place - std::floor(place)) * (numbers[upper] - numbers[lower]);
}

PointResult read_result(StudyPoint const& point, std::string const& metrics,
                        std::filesystem::path const& path) {
  auto result = settings_of(point);
  result.state = name_of(PointState::done);
  auto const events = read_events(metrics, path);
  std::map<std::string, std::vector<double>> phases;
  auto const num_timed =
      std::ranges::count_if(events, [&](json const& event) { return event.at("event") == result.unit(); });
  auto skips_first = num_timed > 1;
  for (auto const& event : events) {
    auto const kind = event.at("event").get<std::string>();
    if (kind == "run") {
      result.grid = event.value("grid", result.grid);
      result.schedule = event.value("schedule", result.schedule);
      result.emulated = event.value("emulated_machine", "");
      result.is_oversubscribed = event.value("oversubscribed", false);
      result.is_pruned = event.contains("kept");
      if (event.value("ranks", std::int64_t{0}) != point.ranks)
        throw_user("'{}' is of {} ranks, and its point of {}: the launcher started another number",
                   path.string(), event.value("ranks", std::int64_t{0}), point.ranks);
    } else if (kind == result.unit()) {
      if (std::exchange(skips_first, false)) continue;
      result.seconds.push_back(event.at("seconds").get<double>());
      result.sent_bytes = event.at("sent_bytes").get<double>();
      for (auto const& [phase, seconds] : event.at("phases").items())
        phases[phase].push_back(seconds.get<double>());
    } else if (kind == "done") {
      result.memory_bytes = event.value("peak_memory_bytes", 0.0);
    }
  }
  if (result.seconds.empty()) throw_user("'{}' has no {}: nothing was timed", path.string(), result.unit());
  for (auto const& [phase, seconds] : phases)
    result.phases[phase] = quantile_of(seconds, 0.5);
  return result;
}

PointResult result_without_metrics(StudyPoint const& point, PointStatus const& status) {
  auto result = settings_of(point);
  result.state = name_of(status.state);
  result.reason = status.reason;
  return result;
}

ordered_json to_json(PointResult const& r) {
  ordered_json json{{"key", r.key},           {"experiment", r.experiment},
                    {"curve", r.curve},       {"command", r.command},
                    {"data", r.data},         {"mode", r.mode},
                    {"schedule", r.schedule}, {"grid", r.grid},
                    {"weak", r.is_weak},      {"ranks", r.ranks},
                    {"repeat", r.repeat},     {"state", r.state}};
  if (!r.reason.empty()) json["reason"] = r.reason;
  if (!r.is_done()) return json;
  if (!r.emulated.empty()) json["emulated_machine"] = r.emulated;
  if (r.is_oversubscribed) json["oversubscribed"] = true;
  if (r.is_pruned) json["pruned"] = true;
  json["seconds"] = r.seconds;
  json["phases"] = r.phases;
  json["sent_bytes"] = r.sent_bytes;
  json["memory_bytes"] = r.memory_bytes;
  if (auto const& p = r.predicted)
    json["predicted"] = {{"machine", p->machine},          {"seconds", p->seconds},
                         {"sparse_seconds", p->sparse},    {"dense_seconds", p->dense},
                         {"pass_seconds", p->passes},      {"call_seconds", p->calls},
                         {"sent_bytes", p->sent_bytes},    {"sent_bytes_are", models::name_of(p->sent_are)},
                         {"memory_bytes", p->memory_bytes}};
  if (r.predicted && !r.predicted->reason.empty()) json["predicted"]["reason"] = r.predicted->reason;
  return json;
}

PointResult result_of(json const& json) {
  PointResult r;
  for (auto const& [name, text] : {std::pair("key", &r.key),
                                   {"experiment", &r.experiment},
                                   {"curve", &r.curve},
                                   {"command", &r.command},
                                   {"data", &r.data},
                                   {"mode", &r.mode},
                                   {"schedule", &r.schedule},
                                   {"grid", &r.grid},
                                   {"state", &r.state}})
    *text = json.at(name).get<std::string>();
  r.is_weak = json.at("weak").get<bool>();
  r.ranks = json.at("ranks").get<std::int64_t>();
  r.repeat = json.at("repeat").get<std::int64_t>();
  r.reason = json.value("reason", "");
  if (!json.contains("seconds")) return r;
  r.emulated = json.value("emulated_machine", "");
  r.is_oversubscribed = json.value("oversubscribed", false);
  r.is_pruned = json.value("pruned", false);
  r.seconds = json.at("seconds").get<std::vector<double>>();
  r.phases = json.at("phases").get<std::map<std::string, double>>();
  r.sent_bytes = json.at("sent_bytes").get<double>();
  r.memory_bytes = json.at("memory_bytes").get<double>();
  if (auto const found = json.find("predicted"); found != json.end())
    r.predicted = {found->at("machine").get<std::string>(),
                   found->at("seconds").get<double>(),
                   found->at("sparse_seconds").get<double>(),
                   found->at("dense_seconds").get<double>(),
                   found->at("pass_seconds").get<double>(),
                   found->at("call_seconds").get<double>(),
                   found->at("sent_bytes").get<double>(),
                   found->at("memory_bytes").get<double>(),
                   models::parse_exactness(found->value("sent_bytes_are", "about")),
                   found->value("reason", "")};
  return r;
}

std::vector<PointResult> read_results(std::filesystem::path const& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    throw_user("there are no results '{}'; `orthant study collect` writes them", path.string());
  std::istringstream lines(text_of_file(path));
  std::vector<PointResult> results;
  std::set<std::string> keys;
  std::int64_t place = 0;
  for (std::string line; std::getline(lines, line);) {
    ++place;
    try {
      results.push_back(result_of(json::parse(line)));
    } catch (std::exception const&) { // from nlohmann, or for an unknown word
      throw_user("line {} of '{}' is not the result of a point; `orthant study collect` writes them", place,
                 path.string());
    }
    if (!keys.insert(results.back().key).second)
      throw_user("line {} of '{}' has the point {} for the second time", place, path.string(),
                 results.back().key);
  }
  return results;
}

namespace {

/// Options of the point, from its arguments and preset, as the training reads them.
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
  if (seconds.total() <= prediction.seconds) return; // the slowest rank counts
  prediction.seconds = seconds.total();
  prediction.sparse = seconds.sparse;
  prediction.dense = seconds.dense;
  prediction.passes = seconds.passes;
  prediction.calls = seconds.communication();
}

void add_memory(std::int64_t bytes, PointPrediction& prediction) {
  prediction.memory_bytes = std::max(prediction.memory_bytes, static_cast<double>(bytes));
}

/// Largest number of entries for which the graph is read to count exchanged rows; this takes about ten seconds.
constexpr std::int64_t most_counted_entries = std::int64_t{1} << 28;

/// Sets the exactness of the sent bytes, and the reason if they are not exact.
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
  if (options.compute_dtype != "fp32") return std::nullopt; // machine constants are for fp32
  runtime::MappedArrays const mapped; // so that freed memory is returned before the next point
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
    prediction.memory_bytes = 0; // not predicted: a pruned training also has arrays of all rows
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
  auto const optimizer = optimizer_of(options);
  auto const shape = models::parse_grid(result.grid, static_cast<int>(result.ranks), inner_axes_of(options),
                                        static_cast<int>(options.pipeline));
  if (shape.context > 1)
    model.context_exchange = models::cost_of_language_model(shape, model, sequences, optimizer,
                                                            machine_of(context.world(), options.machine))
                                 .context_exchange;
  PointPrediction prediction;
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    auto const place = pmm::coordinates_of(shape, rank);
    auto const plan = models::plan_sequences(shape, place, model, sequences);
    pmm::StepPlan step(shape, place, sizeof(float));
    models::plan_language_model_step(step, plan, sequences, optimizer);
    prediction.sent_bytes += static_cast<double>(models::sent_bytes_of(step));
    add_seconds(pmm::seconds_of(step, models::machine_for(model, machine)), prediction);
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
  // Emulated runs are predicted with the constants of the emulated machine.
  auto const& name = result.emulated.empty() ? study.jobs.predict : study.jobs.emulate;
  if (name.empty() || point.mode == "minibatch") return std::nullopt;
  auto const machine = machine_of(context.world(), name);
  auto prediction = point.command == "train" ? predict_epoch(context, point, result, machine)
                                             : predict_step(context, point, result, machine);
  if (prediction) prediction->machine = machine.name;
  return prediction;
}

} // namespace orthant::cli
