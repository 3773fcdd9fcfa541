#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a training has decided by itself, and why: lines of --log-level debug.

#include "cli/options/command.hpp"
#include "cli/training/train_options.hpp"
#include "models/gnn/network/grid_cost.hpp"
#include "pmm/grid/process_grid.hpp"

namespace orthant::cli {

/// Grid, schedule, order of each layer's products, rows that move, overlap, and what multiplies. `seconds`: what grid and
/// schedule were chosen by. Does nothing unless such lines are printed. Not collective.
void explain_decisions(Context const& context, pmm::ProcessGrid const& grid,
                       models::EpochSeconds const& seconds, models::NetworkSettings const& settings,
                       models::NetworkPlan const& plan, TrainOptions const& options);

} // namespace orthant::cli
