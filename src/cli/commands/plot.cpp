// SPDX-License-Identifier: Apache-2.0
//
// orthant plot: draws the curves of trainings from their metrics.

#include "cli/commands/subcommands.hpp"
#include "cli/report/figure.hpp"
#include "cli/report/tables.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/job/time_limit.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <thread>

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

Figure figure_of(PlotOptions const& options) {
  return figure_of_metrics(options.files, options.over == "steps" ? XAxis::steps : XAxis::seconds);
}

/// Page with the curves and the latest numbers of each run. It reloads itself until all runs are done.
std::string page_of(PlotOptions const& options, Figure const& figure, std::vector<RunState> const& states,
                    bool is_done) {
  PageSection section{"Curves", to_svg(figure), {}};
  for (auto const& state : states) {
    ReportTable table{state.name + (state.is_done ? ": done" : ": running"), {"latest", ""}, {}};
    for (auto const& [name, value] : state.facts)
      table.rows.push_back({name, value});
    section.tables.push_back(std::move(table));
  }
  auto const summary = is_done ? std::string("All runs are done.")
                               : fmt::format("This page is written anew every {} s.", options.watch);
  return html_page("Training", summary, {section}, is_done ? 0 : static_cast<int>(options.watch));
}

void write(PlotOptions const& options, std::string const& text) {
  runtime::StagedFile staged(options.output, "plot");
  staged.file().append(text);
  staged.publish();
}

/// Writes the page every `options.watch` seconds until all runs are done or a signal arrives. Waits for files that have no epoch yet.
void watch(PlotOptions const& options) {
  runtime::StopSignals const signals;
  std::string waits_for;
  while (signals.received() == 0) {
    auto is_done = false;
    try {
      auto const states = states_of_metrics(options.files);
      is_done = std::ranges::all_of(states, &RunState::is_done);
      write(options, page_of(options, figure_of(options), states, is_done));
      if (is_done) return;
    } catch (runtime::UserError const& error) {
      if (waits_for != error.what()) {
        waits_for = error.what();
        fmt::print(stderr, "plot: waits for the first epoch or step: {}\n", waits_for);
      }
      write(options, html_page("Training", "Waits for the first epoch or step: " + waits_for, {},
                               static_cast<int>(options.watch)));
    }
    auto const next = std::chrono::steady_clock::now() + std::chrono::seconds(options.watch);
    while (signals.received() == 0 && std::chrono::steady_clock::now() < next)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void plot(PlotOptions const& options) {
  if (options.watch > 0) {
    fmt::print("{} is written anew every {} s; Ctrl-C ends that\n", options.output, options.watch);
    std::fflush(stdout);
    return watch(options);
  }
  auto const figure = figure_of(options);
  write(options, options.output.ends_with(".svg")
                     ? to_svg(figure)
                     : page_of(options, figure, states_of_metrics(options.files), true));
  fmt::print("{} run{} in {} panel{}: {}\n", figure.runs.size(), figure.runs.size() == 1 ? "" : "s",
             figure.panels.size(), figure.panels.size() == 1 ? "" : "s", options.output);
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
  runtime::together(world, [&] {
    if (world.is_root()) plot(options);
  });
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_plot() {
  auto command =
      std::make_unique<Command>("plot", "Draw loss, accuracy and speed of trainings from their metrics");
  auto const options = std::make_shared<PlotOptions>();
  command->option("files", options->files, "Metrics files of train or train-lm, one or several");
  command->option("--over", options->over, "Unit of x: steps (epochs of train) or seconds of training",
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
