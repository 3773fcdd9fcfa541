#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant train --mode minibatch, from options to the final table.

#include "cli/options/command.hpp"
#include "cli/training/train_full.hpp"
#include "cli/training/train_options.hpp"
#include "graph/store/store_format.hpp"
#include "models/gnn/batches/network_batches.hpp"
#include "pmm/grid/process_grid.hpp"

namespace orthant::cli {

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
