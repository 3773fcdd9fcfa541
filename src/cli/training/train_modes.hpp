#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant train --mode full and --mode minibatch: from options to the final table.

#include "cli/options/command.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/train_options.hpp"
#include "graph/store/store_format.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/batches/network_batches.hpp"
#include "models/training/training_run.hpp"
#include "pmm/grid/process_grid.hpp"

#include <optional>
#include <string>

namespace orthant::cli {

/// Opens the store of --graph, or makes the data set of --dataset in the memory of every rank. Collective. Throws UserError unless
/// exactly one of them is given, and if the data set does not fit in memory.
[[nodiscard]] graph::GraphStore open_graph_of(runtime::Communicator const& world,
                                              TrainOptions const& options);

/// A graph, and the memory of this process that a data set takes.
struct MeasuredGraph {
  graph::GraphStore store;
  GraphInMemory in_memory; // 0 for a store
};
[[nodiscard]] MeasuredGraph open_measured_graph(runtime::Communicator const& world,
                                                TrainOptions const& options);

/// True for the first training of --seeds; only this one prints the description of the graph.
[[nodiscard]] inline bool is_first_seed(TrainOptions const& options) {
  return options.seed == options.dataset_seed.value_or(options.seed);
}

/// Throws UserError if --grid does not fit the job or has a data axis, which full-graph work does not use.
void require_full_graph_grid(std::string const& grid, int num_ranks);

/// Result of a training: the exit status, and the progress with its scores if it is complete.
struct TrainEnd {
  int status = 0;
  std::optional<models::TrainProgress> progress{};
};

/// Full-graph training. Collective.
[[nodiscard]] TrainEnd train_full(TrainOptions const& options, Context& context);

/// Value of --batch-edges, with auto resolved: "rescale" or "renormalize".
[[nodiscard]] std::string batch_edges_of(TrainOptions const& options, graph::StoreFacts const& facts);
/// Vertices per batch by --batch. For auto: half of the graph (1/16 with --sampler clusters), or less so that each data group has a
/// batch.
[[nodiscard]] std::int64_t batch_size_of(TrainOptions const& options, pmm::GridShape const& shape,
                                         graph::StoreFacts const& facts);

/// Settings of mini-batches on a grid of this shape. Leaves open whether batches are sampled ahead, which depends on the job.
[[nodiscard]] models::MiniBatchSettings
mini_batches_of(TrainOptions const& options, pmm::GridShape const& shape, graph::StoreFacts const& facts);

/// Mini-batch training. Collective.
[[nodiscard]] TrainEnd train_minibatch(TrainOptions const& options, Context& context);

} // namespace orthant::cli
