#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Numbers names over all ranks in the order in which they first appear: in the names of rank 0, then in those of rank 1, and so on. The rank
// that owns a name, by its hash, gets it from every rank that has it, and decides which rank has it first. Each rank sends each of its names
// once, so that the cost does not depend on how often names occur.

#include "graph/graph_source.hpp"
#include "graph/text/name_table.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <vector>

namespace orthant::graph {

struct NumberedNames {
  std::int64_t count = 0;        // of different names of all ranks
  std::vector<std::int64_t> ids; // [names of this rank]
  NameList all;                  // on rank 0
};

/// Collective.
[[nodiscard]] NumberedNames number_names(runtime::Communicator const& comm, NameList const& mine);

} // namespace orthant::graph
