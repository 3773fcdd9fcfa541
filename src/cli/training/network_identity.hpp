#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which training of a graph network it is that checkpoints are of, and what these take and record of it.

#include "cli/training/checkpoints.hpp"
#include "cli/training/train_options.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/files/network_weights.hpp"
#include "models/gnn/plan/network_plan.hpp"

namespace orthant::cli {

/// checkpoints.identify() by graph, options and batches. Collective. Throws UserError as that does.
void identify(Checkpoints& checkpoints, TrainOptions const& options, pmm::ProcessGrid const& grid,
              graph::GraphStore const& store);

/// Of the parameters of a GCN.
template<class T>
[[nodiscard]] std::int64_t host_copy_bytes(pmm::ProcessGrid const& grid, models::NetworkPlan const& plan,
                                           models::NetworkSettings const& settings, bool writes_checkpoints);

/// What a checkpoint says of the architecture.
[[nodiscard]] models::Architecture record_of_checkpoint(models::NetworkSettings const& settings);

} // namespace orthant::cli
