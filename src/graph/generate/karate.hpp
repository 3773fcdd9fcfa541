#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Zachary's karate club ("An information flow model for conflict and fission in small groups", 1977), built
// in: 34 members, 78 ties, no two files needed for a first run.

#include "graph/graph_source.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <memory>

namespace orthant::graph {

/// Features are the identity, one column a member. num_classes 2: the two clubs after the split, trained on
/// the instructor and the president (vertices 0 and 33), as Kipf and Welling (ICLR 2017) do with one vertex a
/// class; 4: the communities of their appendix, trained on one vertex of each. The other vertices validate
/// and test in turn.
[[nodiscard]] std::unique_ptr<GraphSource> karate_club(runtime::Communicator const& comm,
                                                       std::int64_t num_classes = 2);

} // namespace orthant::graph
