#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The folder that a graph is written to: made, or emptied of the graph that was there before.

#include "graph/graph_source.hpp"
#include "runtime/communicator.hpp"

#include <array>
#include <cstdint>
#include <filesystem>

namespace orthant::graph {

/// Makes `folder`. One that Orthant has written before (its meta.json says so), or any where
/// `replaces_output`, loses the files that Orthant writes, so that none of an earlier graph is left among
/// those of the new one. Throws UserError, the same on all ranks, where another graph or anything else is
/// there. Collective.
void prepare_output_folder(runtime::Communicator const& comm, std::filesystem::path const& folder,
                           bool replaces_output);

/// meta.json, written last. `split_sizes`: of train, valid, test. Collective.
void write_meta(runtime::Communicator const& comm, std::filesystem::path const& folder,
                GraphFacts const& facts, std::int64_t num_edges, std::array<std::int64_t, 3> split_sizes);

} // namespace orthant::graph
