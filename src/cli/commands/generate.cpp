// SPDX-License-Identifier: Apache-2.0
//
// orthant generate: a random graph, seeded, the same from any number of ranks.

#include "cli/commands/subcommands.hpp"
#include "graph/generate/generators.hpp"
#include "graph/largest_graph.hpp"
#include "graph/write/write_graph.hpp"
#include "runtime/report/progress.hpp"

#include <cstdio>
#include <fmt/format.h>
#include <mpi.h>

namespace orthant::cli {
namespace {

struct GenerateOptions {
  std::string kind = "rmat";
  std::int64_t vertices = 10'000;
  std::int64_t edges = 0;
  std::int64_t features = 64;
  std::int64_t classes = 8;
  std::int64_t seed = 0;
  std::string format = "npy";
  std::string output;
};

int run(GenerateOptions const& options, Context& context) {
  if (options.output.empty()) runtime::throw_user("generate: name the folder to write with -o DIR");
  auto const& world = context.world();
  graph::GeneratorOptions how;
  how.kind = graph::parse_generator_kind(options.kind);
  how.num_vertices = options.vertices;
  how.num_edges = options.edges;
  how.num_features = options.features;
  how.num_classes = options.features > 0 ? options.classes : 0; // else topology only
  how.seed = static_cast<std::uint64_t>(options.seed);

  auto const begin = MPI_Wtime();
  auto const source = graph::generate_graph(world, how);
  graph::WriteOptions writing;
  writing.format = graph::parse_output_format(options.format);
  writing.replaces_output = context.replaces_outputs;
  std::unique_ptr<runtime::Progress> bar;
  std::string step;
  auto const style = runtime::progress_style(world.is_root());
  writing.on_progress = [&](std::string const& name, double fraction) {
    if (style != runtime::ProgressStyle::bar) return; // lines would only repeat the summary
    constexpr std::int64_t per_mille = 1000;
    if (name != step || !bar) {
      bar.reset();
      step = name;
      bar = std::make_unique<runtime::Progress>(per_mille, name, style);
    }
    bar->update(static_cast<std::int64_t>(fraction * static_cast<double>(per_mille)));
  };
  graph::write_graph(world, *source, options.output, writing);
  bar.reset();
  if (world.is_root()) {
    auto const& facts = source->facts();
    auto const text = fmt::format("{}: {} vertices, {} edges, {} features, {} classes, in {:.2f} s: {}\n",
                                  facts.name, facts.num_vertices, facts.num_edges, facts.num_features,
                                  facts.num_classes, MPI_Wtime() - begin, options.output);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_generate() {
  auto command = std::make_unique<Command>("generate",
                                           "Write a random graph: R-MAT, stochastic blocks, 2D grid or ring");
  auto const options = std::make_shared<GenerateOptions>();
  command->option("--kind", options->kind, "Kind of graph: rmat, sbm, grid2d or ring",
                  one_of({"rmat", "sbm", "grid2d", "ring"}));
  command->option("--vertices", options->vertices, "Number of vertices",
                  whole_number(2, graph::most_vertices));
  command->option("--edges", options->edges,
                  "Number of edges; 0: 8 a vertex (rmat, sbm), the full grid, one a vertex (ring)",
                  whole_number(0, graph::most_edges));
  command->option("--features", options->features, "Features a vertex; 0 writes the topology only",
                  whole_number(0, graph::most_generated_columns));
  command->option("--classes", options->classes, "Number of classes",
                  whole_number(1, graph::most_generated_columns));
  command->option("--seed", options->seed, "Seed of all randomness", whole_number(0));
  command->option("--format", options->format, "ogb (csv.gz) or npy", one_of({"ogb", "npy"}));
  command->output_folder("-o,--output", options->output, "Folder to write");
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
