#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Data sets by a word instead of a file: "karate", "sbm:vertices=5000,features=64", "rmat:edges=1e6",
// "grid2d", "ring:vertices=100". Keys are GeneratorOptions' members:
//   vertices edges features classes seed train valid test       all but karate (karate: classes)
//   homophily separation (sbm, and separation elsewhere)  a b c (rmat)  directed=0|1 (rmat, sbm)

#include "graph/graph_source.hpp"
#include "runtime/comm/communicator.hpp"

#include <memory>
#include <string_view>

namespace orthant::graph {

/// Collective over `comm`. What the word leaves open: 2,000 vertices, 32 features, 8 classes, split 0.6, 0.2,
/// 0.2, `seed` of the call. Throws UserError, the same on all ranks, where a word or a value is not known.
[[nodiscard]] std::unique_ptr<GraphSource> open_dataset(runtime::Communicator const& comm,
                                                        std::string_view description, std::uint64_t seed = 0);

} // namespace orthant::graph
