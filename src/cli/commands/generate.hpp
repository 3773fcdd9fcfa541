#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options of the graphs that are generated, to files (generate) or to a store (partition --generate).

#include "cli/options/command.hpp"
#include "graph/generate/generators.hpp"

namespace orthant::cli {

/// The kinds of graphs, as graph::parse_generator_kind() reads them.
[[nodiscard]] std::vector<std::string> generator_kinds();

struct GeneratorOptions {
  std::string kind;
  std::int64_t vertices = 10'000;
  std::int64_t edges = 0;
  std::int64_t features = 64;
  std::int64_t classes = 8;
};

/// All but the kind, whose option the commands call differently.
void add_generator_options(Command& command, GeneratorOptions& options);

[[nodiscard]] graph::GeneratorOptions generator_of(GeneratorOptions const& options, std::int64_t seed);

} // namespace orthant::cli
