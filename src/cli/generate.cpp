// SPDX-License-Identifier: Apache-2.0
//
// orthant generate: a random graph, seeded, the same from any number of ranks.

#include "cli/subcommands.hpp"

namespace orthant::cli {
namespace {

struct GenerateOptions {
  std::string kind = "rmat";
  std::int64_t vertices = 10'000;
  std::int64_t edges = 100'000;
  std::int64_t features = 64;
  std::int64_t classes = 8;
  std::int64_t seed = 0;
  std::string format = "npy";
  std::string output;
};

int run(GenerateOptions const& options, Context&) {
  if (options.output.empty()) runtime::throw_user("generate: name the folder to write with -o DIR");
  refuse_unbuilt("orthant generate");
}

} // namespace

std::unique_ptr<Command> make_generate() {
  auto command = std::make_unique<Command>("generate",
                                           "Write a random graph: R-MAT, stochastic blocks, 2D grid or ring");
  auto const options = std::make_shared<GenerateOptions>();
  command->option("--kind", options->kind, "Kind of graph: rmat, sbm, grid2d or ring",
                  one_of({"rmat", "sbm", "grid2d", "ring"}));
  command->option("--vertices", options->vertices, "Number of vertices", in_range(1));
  command->option("--edges", options->edges, "Number of edges", in_range(0));
  command->option("--features", options->features, "Features a vertex; 0 writes the topology only",
                  in_range(0));
  command->option("--classes", options->classes, "Number of classes", in_range(1));
  command->option("--seed", options->seed, "Seed of all randomness", in_range(0));
  command->option("--format", options->format, "ogb (csv.gz) or npy", one_of({"ogb", "npy"}));
  command->option("-o,--output", options->output, "Folder to write");
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
