#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant train --mode full and --mode minibatch, from options to the final table.

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

/// The store of --graph, or the data set of --dataset, which every rank makes and keeps in memory.
/// Collective. Throws UserError unless one of them is given, and if the data set does not fit in memory.
[[nodiscard]] graph::GraphStore open_graph_of(runtime::Communicator const& world,
                                              TrainOptions const& options);

/// The same, with the memory of this process that a data set takes.
struct MeasuredGraph {
  graph::GraphStore store;
  GraphInMemory in_memory; // nothing of a store
};
[[nodiscard]] MeasuredGraph open_measured_graph(runtime::Communicator const& world,
                                                TrainOptions const& options);

/// Whether what is said of the graph has not been said for another of --seeds.
[[nodiscard]] inline bool is_first_seed(TrainOptions const& options) {
  return options.seed == options.dataset_seed.value_or(options.seed);
}

/// Throws UserError where --grid does not fit the job or, for full-graph work, has a data axis.
void require_full_graph_grid(std::string const& grid, int num_ranks);

/// How a training ended: the exit status, and the scores if it was complete.
struct TrainEnd {
  int status = 0;
  std::optional<models::TrainProgress> progress{};
};

/// Collective.
[[nodiscard]] TrainEnd train_full(TrainOptions const& options, Context& context);

/// "rescale" or "renormalize", what --batch-edges asks for.
[[nodiscard]] std::string batch_edges_of(TrainOptions const& options, graph::StoreFacts const& facts);
/// Vertices of a batch that --batch asks for; auto: a share of the graph's, as the table of README has it.
[[nodiscard]] std::int64_t batch_size_of(TrainOptions const& options, pmm::GridShape const& shape,
                                         graph::StoreFacts const& facts);

/// Batches on a grid of that shape, as the options have them; whether they are sampled ahead is for the job to say.
[[nodiscard]] models::MiniBatchSettings
mini_batches_of(TrainOptions const& options, pmm::GridShape const& shape, graph::StoreFacts const& facts);

/// Collective.
[[nodiscard]] TrainEnd train_minibatch(TrainOptions const& options, Context& context);

} // namespace orthant::cli
