#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Checks a graph file of METIS as a whole, and finds which vertices the lines of each rank belong to.

#include "graph/text/metis_graph.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>

namespace orthant::graph {

/// Returns the first vertex of this rank's part of the lines. Throws UserError on all ranks if a line is wrong, if there are more or fewer
/// lines or edges than the head says, or if an edge is not listed at both of its ends with the same weight. Reads the file twice.
/// Collective.
[[nodiscard]] std::int64_t check_metis_graph(runtime::Communicator const& comm,
                                             std::filesystem::path const& path, MetisHead const& head);

} // namespace orthant::graph
