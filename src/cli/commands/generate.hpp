#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options of generated graphs, which go to files (`generate`) or into a store (`partition --generate`).

#include "cli/options/command.hpp"
#include "graph/generate/generators.hpp"

namespace orthant::cli {

/// Names of the kinds of graphs that graph::parse_generator_kind() accepts.
[[nodiscard]] std::vector<std::string> generator_kinds();

struct GeneratorOptions {
  std::string kind;
  std::int64_t vertices = 10'000;
  std::int64_t edges = 0;
  std::int64_t features = 64;
  std::int64_t classes = 8;
};

/// Declares all options except the kind, which each command names differently.
void add_generator_options(Command& command, GeneratorOptions& options);

[[nodiscard]] graph::GeneratorOptions generator_of(GeneratorOptions const& options, std::int64_t seed);

} // namespace orthant::cli
