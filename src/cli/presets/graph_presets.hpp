#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Named sets of options of train: a model with the settings of its paper for a graph.

#include "cli/training/train_options.hpp"

namespace orthant::cli {

// What `orthant bench epoch` takes of a training's command line; it passes over what makes no difference to an epoch.

void add_epoch_options(Command& command, TrainOptions& options);
/// Takes --preset into the options and makes the checks of train. Throws UserError, also for what has no bare products.
void complete_epoch_options(Context& context, TrainOptions& options);

/// Adds --preset.
void add_preset_option(Command& command, TrainOptions& options);
/// Options that nobody gave := those of --preset; the run's record says so.
void apply_preset(Context& context, TrainOptions& options);

} // namespace orthant::cli
