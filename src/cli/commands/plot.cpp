// SPDX-License-Identifier: Apache-2.0
//
// orthant plot: curves of trainings from their metrics.

#include "cli/commands/subcommands.hpp"
#include "cli/report/figure.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"

#include <cstdio>
#include <span>

namespace orthant::cli {
namespace {

struct PlotOptions {
  std::vector<std::string> files;
  std::string output;
  std::string over = "steps";
};

/// `--output` and the metrics files, which a list of names cannot declare.
std::vector<FileOption> files_of(PlotOptions const& options) {
  std::vector<FileOption> files{{"--output", FileOption::Use::output, &options.output}};
  for (auto const& file : options.files)
    files.push_back({"files", FileOption::Use::input, &file});
  return files;
}

int run(PlotOptions const& options, Context& context) {
  if (options.files.empty()) runtime::throw_user("plot: name the metrics of a training, such as run.jsonl");
  if (options.output.empty()) runtime::throw_user("plot: name the file to write with -o FILE.svg");
  if (!options.output.ends_with(".svg"))
    runtime::throw_user("plot writes .svg files, and '{}' does not end with that", options.output);
  auto const& world = context.world();
  require_distinct_files(world, files_of(options));
  runtime::together(world, [&] {
    if (!world.is_root()) return;
    auto const figure =
        figure_of_metrics(options.files, options.over == "steps" ? XAxis::steps : XAxis::seconds);
    auto const svg = to_svg(figure);
    runtime::StagedFile staged(options.output, "plot");
    staged.file().append(svg);
    staged.publish();
    auto const text =
        fmt::format("{} run{} in {} panel{}: {}\n", figure.runs.size(), figure.runs.size() == 1 ? "" : "s",
                    figure.panels.size(), figure.panels.size() == 1 ? "" : "s", options.output);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  });
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_plot() {
  auto command =
      std::make_unique<Command>("plot", "Draw loss, accuracy and speed of trainings from their metrics");
  auto const options = std::make_shared<PlotOptions>();
  command->option("files", options->files, "Metrics files of train or train-lm, one or several");
  command->option("--over", options->over, "What x is: steps (epochs of train) or seconds of training",
                  one_of({"steps", "seconds"}));
  command->output("-o,--output", options->output, "SVG file to write");
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
