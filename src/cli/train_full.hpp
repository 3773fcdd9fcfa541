#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant train --mode full, from options to the final table.

#include "cli/train_options.hpp"
#include "graph/store_reader.hpp"

#include <string>

namespace orthant::cli {

/// The store of --graph, or the data set of --dataset in memory. Collective. Throws UserError unless one of
/// them is given.
[[nodiscard]] graph::GraphStore open_graph_of(runtime::Communicator const& world, std::string const& path,
                                              std::string const& dataset, std::int64_t seed);

/// Returns the exit status. Collective.
[[nodiscard]] int train_full(TrainOptions const& options, Context& context);

} // namespace orthant::cli
