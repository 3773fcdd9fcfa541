#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Named sets of options of train: a model with the settings of its paper for a graph.

#include "cli/training/train_options.hpp"

namespace orthant::cli {

/// Adds --preset.
void add_preset_option(Command& command, TrainOptions& options);
/// Options that nobody gave := those of --preset; the run's record says so.
void apply_preset(Context& context, TrainOptions& options);

} // namespace orthant::cli
