// SPDX-License-Identifier: Apache-2.0
//
// orthant plot: draws the curves of trainings from their metrics.

#include "cli/commands/subcommands.hpp"
#include "cli/report/figure.hpp"
#include "cli/report/tables.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/job/time_limit.hpp"

#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <thread>
#include <utility>

namespace orthant::cli {
namespace {

struct PlotOptions {
  std::vector<std::string> files;
  std::string output;
  std::string over = "steps";
  std::int64_t watch = 0; // seconds; 0: write once
};

/// File options: --output, and the metrics files, which a list option cannot declare.
std::vector<FileOption> files_of(PlotOptions const& options) {
  std::vector<FileOption> files{{"--output", FileOption::Use::output, &options.output}};
  for (auto const& file : options.files)
    files.push_back({"files", FileOption::Use::input, &file});
  return files;
}

MetricsFigure read(PlotOptions const& options) {
  return read_metrics_figure(options.files, options.over == "steps" ? XAxis::steps : XAxis::seconds);
}

/// Page with the curves and the latest numbers of each run. A browser reloads it every `reload_seconds`; never if that is 0.
std::string page_of(MetricsFigure const& metrics, std::string const& summary, int reload_seconds) {
  PageSection section{"Curves", to_svg(metrics.figure), {}};
  for (auto const& state : metrics.states) {
    ReportTable table{state.name + ": " + state.status, {"latest", ""}, {}};
    for (auto const& [name, value] : state.facts)
      table.rows.push_back({name, value});
    section.tables.push_back(std::move(table));
  }
  return html_page("Training", summary, {section}, reload_seconds);
}

std::string summary_of(MetricsFigure const& metrics) {
  return metrics.has_ended ? "All runs have ended." : "Some runs have not ended.";
}

void write(PlotOptions const& options, std::string const& text) {
  runtime::StagedFile staged(options.output, "plot");
  staged.file().append(text);
  staged.publish();
}

/// Writes the page every `options.watch` seconds until all runs have ended or a signal arrives. Waits for files that do not exist or have
/// no epoch or step yet.
void watch(PlotOptions const& options, runtime::StopSignals const& signals) {
  auto const seconds = static_cast<int>(options.watch);
  std::string waits_for;
  while (true) {
    auto const metrics = read(options);
    auto const is_last = signals.received() != 0 || (metrics.has_ended && metrics.nothing_yet.empty());
    if (metrics.nothing_yet.empty()) {
      auto const summary = metrics.has_ended ? summary_of(metrics)
                           : is_last         ? "Some runs have not ended; this page is no longer written."
                                             : fmt::format("This page is written anew every {} s.", seconds);
      write(options, page_of(metrics, summary, is_last ? 0 : seconds));
    } else {
      if (waits_for != metrics.nothing_yet)
        fmt::print(stderr, "plot: waits for the first epoch or step: {}\n", metrics.nothing_yet);
      waits_for = metrics.nothing_yet;
      write(options, html_page("Training", "Waits for the first epoch or step: " + waits_for, {},
                               is_last ? 0 : seconds));
    }
    if (is_last) return;
    auto const next = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (signals.received() == 0 && std::chrono::steady_clock::now() < next)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void plot(PlotOptions const& options) {
  auto const metrics = read(options);
  if (!metrics.nothing_yet.empty()) runtime::throw_user("{}", metrics.nothing_yet);
  write(options,
        options.output.ends_with(".svg") ? to_svg(metrics.figure) : page_of(metrics, summary_of(metrics), 0));
  auto const& [runs, panels] = std::pair(metrics.figure.runs.size(), metrics.figure.panels.size());
  fmt::print("{} run{} in {} panel{}: {}\n", runs, runs == 1 ? "" : "s", panels, panels == 1 ? "" : "s",
             options.output);
  std::fflush(stdout);
}

int run(PlotOptions const& options, Context& context) {
  if (options.files.empty()) runtime::throw_user("plot: name the metrics of a training, such as run.jsonl");
  if (options.output.empty()) runtime::throw_user("plot: name the file to write with -o FILE.svg");
  if (!options.output.ends_with(".svg") && !options.output.ends_with(".html"))
    runtime::throw_user("plot writes .svg and .html files, and '{}' ends with neither", options.output);
  if (options.watch > 0 && !options.output.ends_with(".html"))
    runtime::throw_user("plot: --watch writes a page: name an .html file with -o, not '{}'", options.output);
  auto const& world = context.world();
  require_distinct_files(world, files_of(options));
  // All ranks catch signals, because the launcher ends the whole job if a signal ends one rank.
  auto const signals = options.watch > 0 ? std::make_unique<runtime::StopSignals>() : nullptr;
  runtime::together(world, [&] {
    if (!world.is_root()) return;
    if (!signals) return plot(options);
    fmt::print("{} is written anew every {} s; Ctrl-C ends that\n", options.output, options.watch);
    std::fflush(stdout);
    watch(options, *signals);
  });
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_plot() {
  auto command = std::make_unique<Command>(
      "plot", "Draw curves of loss, accuracy and speed of trainings from their metrics");
  auto const options = std::make_shared<PlotOptions>();
  command->option("files", options->files, "Metrics files of train or train-lm, one or several");
  command->option("--over", options->over,
                  "Unit of the x axis: steps (epochs of train) or seconds of training",
                  one_of({"steps", "seconds"}));
  command->option("--watch", options->watch,
                  "Write the page (.html) every N seconds until the trainings end; 0: once",
                  whole_number(0, 3600));
  command->output("-o,--output", options->output,
                  "File to write: .svg, or .html for a page with the latest numbers");
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
