// SPDX-License-Identifier: Apache-2.0
#include "cli/options/generator_options.hpp"

#include "graph/graph_source.hpp"

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
  generator.num_classes = options.features > 0 ? options.classes : 0; // else topology only
  generator.seed = static_cast<std::uint64_t>(seed);
  return generator;
}

} // namespace orthant::cli
