#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options of train that would do nothing beside the others. A flag that has no effect is a mistake, and refused; what
// an environment or a file says may be meant for other trainings, and is told.

#include "cli/options/command.hpp"
#include "cli/training/train_options.hpp"

namespace orthant::cli {

/// Throws UserError, which says what would give the flag an effect, for the first one without any. The same on all
/// ranks; not collective.
void require_effective_options(Context const& context, TrainOptions const& options);
/// The same of the options of the optimizer, which every training has.
void require_effective_optimizer_options(Context const& context, OptimizerOptions const& options);

/// Throws UserError if --checkpoint-every or --max-walltime cannot be read, for commands that pass them over. `unit`: "epoch".
void require_readable_times(CheckpointOptions const& options, std::string_view unit);

} // namespace orthant::cli
