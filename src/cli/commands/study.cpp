// SPDX-License-Identifier: Apache-2.0
//
// orthant study: runs scaling studies, from a study file to tables, figures and a page. All state is in the study's folder, so a study
// can be continued at any time.

#include "cli/commands/subcommands.hpp"
#include "cli/report/figure.hpp"
#include "cli/report/point_result.hpp"
#include "cli/report/scaling.hpp"
#include "cli/report/tables.hpp"
#include "cli/study/launch.hpp"
#include "cli/training/train_settings.hpp"
#include "pmm/cost/machine_file.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/machine/binding.hpp"

#include <algorithm>
#include <cstdlib>
#include <fmt/ranges.h>

namespace orthant::cli {
namespace {

namespace fs = std::filesystem;

struct StudyOptions {
  std::string file;
  std::string output;
  std::string machine;
  std::string launcher;
  std::string results;
  bool here = false;
};

/// Opens the study file. Throws UserError if the command runs on several ranks: it starts jobs itself.
Study open_study(Context const& context, StudyOptions const& o) {
  if (context.world().size() > 1)
    runtime::throw_user("study starts jobs itself: run it as one process, without mpirun or srun");
  if (o.file.empty())
    runtime::throw_user("study: name the study file; `orthant study init -o study.toml` writes one");
  return read_study(o.file);
}

std::string counts_text(std::vector<PointStatus> const& states) {
  std::vector<std::string> parts;
  for (auto const state : {PointState::done, PointState::failed, PointState::lost, PointState::running,
                           PointState::waiting, PointState::to_do})
    if (auto const count = std::ranges::count(states, state, &PointStatus::state); count > 0)
      parts.push_back(fmt::format("{} {}", count, name_of(state)));
  return fmt::format("{} points: {}", states.size(), fmt::join(parts, ", "));
}

std::string failures_text(std::vector<StudyPoint> const& points, std::vector<PointStatus> const& states) {
  std::string text;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (!states[i].reason.empty())
      text += fmt::format("{:<7} {}: {}\n", name_of(states[i].state), points[i].key, states[i].reason);
  return text;
}

// init

int init(StudyOptions const& o, Context& context) {
  if (o.output.empty()) runtime::throw_user("study init: name the file to write with -o study.toml");
  auto const path = fs::path(o.output);
  auto text = example_study(path.stem().string(), o.machine);
  for (auto const& [name, constants] : pmm::built_in_machines()) {
    if (name != o.machine) continue;
    auto const replace = [&](std::string const& old, std::string const& value) {
      text.replace(text.find(old), old.size(), value);
    };
    replace("ranks_per_node = 4",
            fmt::format("ranks_per_node = {}", pmm::parse_machine(constants, o.machine).ranks_per_node));
    replace("predict = \"host\"", fmt::format("predict = \"{}\"", name));
  }
  std::ignore = points_of(parse_study(text, path)); // throws if the text is not valid
  runtime::together(context.world(), [&] {
    if (context.world().is_root()) write_file(path, text);
  });
  say(context, "{}: edit it, then `orthant study submit {}`\n", o.output, o.output);
  return runtime::exit_done;
}

// submit

std::string launcher_of(Study const& study, StudyOptions const& o) {
  if (!o.launcher.empty()) return o.launcher;
  if (!study.jobs.launcher.empty()) return study.jobs.launcher;
  auto const* const variable = std::getenv("ORTHANT_MPIRUN");
  return variable != nullptr && *variable != '\0' ? variable : "mpirun -n";
}

/// Note on the points that run here with more ranks than cores; empty if there are none. Emulated points do not count: their clocks exclude
/// the time in which a rank waits for its core.
std::string oversubscribed_text(Study const& study, std::vector<StudyPoint> const& points) {
  auto const num_cores = std::ssize(runtime::allowed_cores());
  if (num_cores == 0 || !study.jobs.emulate.empty()) return {};
  auto const count =
      std::ranges::count_if(points, [&](StudyPoint const& point) { return point.ranks > num_cores; });
  if (count == 0) return {};
  return fmt::format(
      "{} of them on more ranks than the {} core{} here: their seconds mean nothing, their bytes "
      "and memory do; the report marks them\n",
      count, num_cores, num_cores == 1 ? "" : "s");
}

int run_here(Study const& study, StudyFolder const& folder, std::vector<StudyPoint> const& points,
             StudyOptions const& o, Context const& context) {
  say(context, "{}", oversubscribed_text(study, points));
  auto number = 0;
  auto const num_failed =
      run_points_here(study, folder, points, launcher_of(study, o), [&](StudyPoint const& point, int status) {
        auto const reason = status == 0 ? "" : ": " + folder.status_of(std::span(&point, 1)).front().reason;
        say(context, "{}/{} {:<7} {}{}\n", ++number, points.size(), status == 0 ? "done" : "failed",
            point.key, reason);
      });
  if (num_failed == 0) return runtime::exit_done;
  say(context, "{} of {} failed; the next submit tries them again\n", num_failed, points.size());
  return runtime::exit_internal;
}

int submit(StudyOptions const& o, Context& context) {
  auto study = open_study(context, o);
  if (!o.launcher.empty()) study.jobs.launcher = o.launcher;
  StudyFolder const folder(study);
  auto const points = points_of(study);
  folder.make();
  auto const states = folder.status_of(points);
  auto const chosen = points_to_start(points, states);
  say(context, "{}: {}, {} to start\n", study.name, counts_text(states), chosen.size());
  say(context, "{}", failures_text(points, states));
  if (chosen.empty()) return runtime::exit_done;
  if (o.here) return run_here(study, folder, chosen, o, context);
  auto const jobs = submit_points(study, folder, chosen, o.machine.empty() ? study.jobs.machine : o.machine);
  for (auto const& job : jobs)
    say(context, "job {}: {} points\n", job.id, job.points.size());
  return runtime::exit_done;
}

// status

int status(StudyOptions const& o, Context& context) {
  auto const study = open_study(context, o);
  auto const points = points_of(study);
  auto const states = StudyFolder(study).status_of(points);
  say(context, "{}: {}\n{}", study.name, counts_text(states), failures_text(points, states));
  return runtime::exit_done;
}

// collect

/// Predictions of points; repeats of a point are predicted once.
class Predictions {
 public:
  Predictions(Context const& context, Study const& study) : context_(context), study_(study) {
    fs::current_path(study.home()); // paths in the file are relative to it
  }
  [[nodiscard]] std::optional<PointPrediction> of(StudyPoint const& point, PointResult const& result) {
    auto const key = fmt::format("{} {} {} {} {}", fmt::join(point.arguments, " "), result.grid,
                                 result.schedule, result.ranks, result.emulated);
    if (auto const found = known_.find(key); found != known_.end()) return found->second;
    std::optional<PointPrediction> prediction;
    try {
      prediction = predict(context_, study_, point, result);
    } catch (runtime::UserError const& error) {
      context_.log().warn("{} is not predicted: {}", point.key, error.what());
    }
    return known_.emplace(key, prediction).first->second;
  }

 private:
  Context const& context_;
  Study const& study_;
  std::map<std::string, std::optional<PointPrediction>> known_;
};

/// Result of a point. If its metrics are not of a complete run, only this point fails; a file that cannot be read is an error of the
/// command.
PointResult result_of(StudyPoint const& point, PointStatus const& state, StudyFolder const& folder) {
  if (state.state != PointState::done) return result_without_metrics(point, state);
  auto const path = folder.result(point);
  auto const metrics = text_of_file(path);
  try {
    return read_result(point, metrics, path);
  } catch (runtime::UserError const& error) {
    return result_without_metrics(point, {PointState::failed, error.what()});
  }
}

int collect(StudyOptions const& o, Context& context) {
  auto const study = open_study(context, o);
  StudyFolder const folder(study);
  auto const points = points_of(study);
  auto const states = folder.status_of(points);
  Predictions predictions(context, study);
  std::string lines;
  for (std::size_t i = 0; i < points.size(); ++i) {
    auto result = result_of(points[i], states[i], folder);
    if (result.is_done()) result.predicted = predictions.of(points[i], result);
    lines += to_json(result).dump() + "\n";
  }
  folder.make();
  write_file(folder.collected(), lines);
  say(context, "{}: {}: {}\n{}", study.name, counts_text(states), folder.collected().string(),
      failures_text(points, states));
  return runtime::exit_done;
}

// report

std::string summary_of(std::vector<PointResult> const& results, std::vector<ScalingCurve> const& curves) {
  auto const num_done = std::ranges::count_if(results, &PointResult::is_done);
  std::string text = fmt::format(
      "{} points, {} measured. Medians and quartiles are over all epochs or steps of all repeats "
      "but each repeat's first. \"Measured is\" tells how far the measured number is above the "
      "predicted one. Bytes that are predicted exactly follow from the graph; predicted seconds and "
      "memory are estimates.",
      results.size(), num_done);
  auto const found =
      std::ranges::find_if(curves, [](ScalingCurve const& curve) { return !curve.emulated.empty(); });
  if (found != curves.end())
    text += fmt::format(" All {}. No such machine was used.", clock_note(found->emulated));
  return text;
}

int report(StudyOptions const& o, Context& context) {
  auto const study = open_study(context, o);
  StudyFolder const folder(study);
  auto const path = o.results.empty() ? folder.collected() : fs::path(o.results);
  auto const results = read_results(path);
  auto const curves = curves_of(results);
  auto const output = o.output.empty() ? folder.report() : fs::path(o.output);
  std::error_code error;
  fs::create_directories(output, error);
  if (error) runtime::throw_user("cannot make the folder '{}': {}", output.string(), error.message());

  std::vector<PageSection> sections;
  for (auto const& experiment : experiments_of(curves)) {
    auto const svg = to_svg(figure_of_experiment(curves, experiment));
    write_file(output / (experiment + ".svg"), svg);
    sections.push_back({experiment,
                        svg,
                        {times_table(curves, experiment), phases_table(curves, experiment),
                         bytes_table(curves, experiment)}});
  }
  if (auto const missing = missing_table(results); !missing.rows.empty())
    sections.push_back({"Missing points", "", {missing}});
  for (auto const& section : sections)
    for (auto const& table : section.tables)
      say(context, "{}\n", to_text(table));
  write_file(output / "report.html",
             html_page("Scaling study " + study.name, summary_of(results, curves), sections));
  say(context, "{}\n", (output / "report.html").string());
  return runtime::exit_done;
}

std::unique_ptr<Command> make(std::string const& name, std::string const& summary,
                              std::shared_ptr<StudyOptions> const& o,
                              int (*run)(StudyOptions const&, Context&)) {
  auto command = std::make_unique<Command>("study " + name, summary);
  if (name != "init") command->input("file", o->file, "Study file");
  command->set_needs_device(false);
  command->set_run([o, run](Context& context) { return run(*o, context); });
  return command;
}

} // namespace

std::unique_ptr<Command> make_study_init() {
  auto const o = std::make_shared<StudyOptions>();
  o->machine = "generic";
  auto command = make("init", "Write an example of a study file", o, init);
  std::vector<std::string> names;
  for (auto const& job_template : built_in_templates())
    names.emplace_back(job_template.name);
  command->output("-o,--output", o->output, "Study file to write (.toml)");
  command->option("--machine", o->machine, fmt::format("Where the jobs will run: {}", fmt::join(names, ", ")),
                  one_of(names));
  return command;
}

std::unique_ptr<Command> make_study_submit() {
  auto const o = std::make_shared<StudyOptions>();
  auto command =
      make("submit", "Start the points that have no result yet, as jobs of Slurm or Flux or on this machine",
           o, submit);
  command->option("--machine", o->machine,
                  "Template of the batch jobs: generic, perlmutter, frontier, alps, tuolumne, or a script; "
                  "default: that of the file");
  command->flag("--here", o->here,
                "Run the points one after the other on this machine, without a scheduler; also those with "
                "more ranks than cores, whose times the report marks as meaningless");
  command->option(
      "--launcher", o->launcher,
      "Launcher command to which the number of ranks is appended, such as \"mpirun -n\"; default: "
      "that of the file or the template; with --here ORTHANT_MPIRUN or mpirun");
  return command;
}

std::unique_ptr<Command> make_study_status() {
  return make("status", "Show how many points are done, and why points failed",
              std::make_shared<StudyOptions>(), status);
}

std::unique_ptr<Command> make_study_collect() {
  return make("collect", "Collect the metrics and the predictions of all points in one file",
              std::make_shared<StudyOptions>(), collect);
}

std::unique_ptr<Command> make_study_report() {
  auto const o = std::make_shared<StudyOptions>();
  auto command =
      make("report", "Print tables, and write figures and a page of the collected results", o, report);
  command->input("--results", o->results, "File of study collect; by default that in the study's folder");
  command->option("-o,--output", o->output, "Folder to write; by default report/ in the study's folder");
  return command;
}

} // namespace orthant::cli
