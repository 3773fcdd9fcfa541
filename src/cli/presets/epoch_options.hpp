#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What `orthant bench epoch` takes of a training's command line; it passes over what makes no difference to an epoch.

#include "cli/training/train_options.hpp"

namespace orthant::cli {

void add_epoch_options(Command& command, TrainOptions& options);
/// Takes --preset into the options and makes the checks of train. Throws UserError, also for what has no bare products.
void complete_epoch_options(Context& context, TrainOptions& options);

} // namespace orthant::cli
