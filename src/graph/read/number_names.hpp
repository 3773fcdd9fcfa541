#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Assigns numbers to names over all ranks, in the order of first appearance: first the names of rank 0, then those of rank 1, and so on.
// The hash of a name selects the rank that owns it. Every rank with this name sends it to the owner, which decides which rank has it first.
// Each rank sends each of its names once, so the cost does not depend on how often names occur.

#include "graph/graph_source.hpp"
#include "graph/text/name_table.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <vector>

namespace orthant::graph {

struct NumberedNames {
  std::int64_t count = 0;        // number of distinct names on all ranks
  std::vector<std::int64_t> ids; // [names of this rank]
  NameList all;                  // on rank 0
};

/// Collective.
[[nodiscard]] NumberedNames number_names(runtime::Communicator const& comm, NameList mine);

} // namespace orthant::graph
