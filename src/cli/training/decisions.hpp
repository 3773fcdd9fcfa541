#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a training has decided by itself, and why: lines of --log-level debug.

#include "cli/options/command.hpp"
#include "cli/training/train_options.hpp"
#include "graph/store/store_reader.hpp"
#include "models/plan/gcn_plan.hpp"
#include "models/plan/gcn_settings.hpp"
#include "pmm/cost/machine.hpp"
#include "pmm/grid/process_grid.hpp"

namespace orthant::cli {

/// Grid, schedule, order of each layer's products, rows that move, overlap, and what multiplies. `facts`: of the graph,
/// or for mini-batches of a batch. Does nothing unless such lines are printed. Not collective.
void explain_decisions(Context const& context, pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                       models::GcnSettings const& settings, models::GcnPlan const& plan,
                       TrainOptions const& options, pmm::Machine const& machine);

} // namespace orthant::cli
