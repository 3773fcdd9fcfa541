#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant train --mode full, from options to the final table.

#include "cli/train_options.hpp"
#include "graph/store_reader.hpp"
#include "pmm/process_grid.hpp"

#include <string>

namespace orthant::cli {

/// The store of --graph, or the data set of --dataset in memory. Collective. Throws UserError unless one of
/// them is given.
[[nodiscard]] graph::GraphStore open_graph_of(runtime::Communicator const& world, std::string const& path,
                                              std::string const& dataset, std::int64_t seed);

/// The shape of --grid for full-graph work. Throws UserError where it does not fit the job or has a data
/// axis.
[[nodiscard]] pmm::GridShape full_graph_shape(std::string const& grid, int num_ranks);

/// Returns the exit status. Collective.
[[nodiscard]] int train_full(TrainOptions const& options, Context& context);

} // namespace orthant::cli
