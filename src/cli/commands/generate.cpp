// SPDX-License-Identifier: Apache-2.0
//
// orthant generate: writes a random graph, which depends on the seed but not on the number of ranks.

#include "cli/commands/subcommands.hpp"

#include "graph/graph_source.hpp"
#include "graph/write/write_graph.hpp"
#include "runtime/report/progress.hpp"

#include <cstdio>
#include <fmt/format.h>
#include <mpi.h>

namespace orthant::cli {

std::vector<std::string> generator_kinds() {
  return {"rmat", "sbm", "grid2d", "ring"};
}

void add_generator_options(Command& command, GeneratorOptions& options) {
  command.option("--vertices", options.vertices, "Number of vertices to generate",
                 whole_number(2, graph::most_vertices));
  command.option(
      "--edges", options.edges,
      "Number of edges to generate; 0: 8 per vertex (rmat, sbm), the full grid, one per vertex (ring)",
      whole_number(0, graph::most_edges));
  command.option("--features", options.features, "Features per vertex to generate; 0: topology only",
                 whole_number(0, graph::most_generated_columns));
  command.option("--classes", options.classes, "Number of classes to generate",
                 whole_number(1, graph::most_generated_columns));
}

graph::GeneratorOptions generator_of(GeneratorOptions const& options, std::int64_t seed) {
  graph::GeneratorOptions generator;
  generator.kind = graph::parse_generator_kind(options.kind);
  generator.num_vertices = options.vertices;
  generator.num_edges = options.edges;
  generator.num_features = options.features;
  generator.num_classes = options.features > 0 ? options.classes : 0; // 0: topology only
  generator.seed = static_cast<std::uint64_t>(seed);
  return generator;
}

namespace {

struct GenerateOptions {
  GeneratorOptions generated{.kind = "rmat"};
  std::int64_t seed = 0;
  std::string format = "npy";
  std::string output;
};

int run(GenerateOptions const& options, Context& context) {
  if (options.output.empty()) runtime::throw_user("generate: name the folder to write with -o DIR");
  auto const& world = context.world();
  auto const begin = MPI_Wtime();
  auto const source = graph::generate_graph(world, generator_of(options.generated, options.seed));
  graph::WriteOptions writing;
  writing.format = graph::parse_output_format(options.format);
  writing.replaces_output = context.replaces_outputs;
  runtime::StepBars bars(world.is_root());
  writing.on_progress = [&](std::string const& step, double fraction) { bars.report(step, fraction); };
  graph::write_graph(world, *source, options.output, writing);
  bars.finish();
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
  command->option("--kind", options->generated.kind, "Kind of graph: rmat, sbm, grid2d or ring",
                  one_of(generator_kinds()));
  add_generator_options(*command, options->generated);
  command->option("--seed", options->seed, "Seed of all randomness", whole_number(0));
  command->option("--format", options->format, "ogb (csv.gz) or npy", one_of({"ogb", "npy"}));
  command->output_folder("-o,--output", options->output, "Folder to write");
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
