#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a preset of train-lm gives bends to the options that the user has given.

#include "cli/lm/train_lm_options.hpp"

namespace orthant::cli {

/// Changes numbers of the preset that contradict the user's options, and says so in one line. If the user's own options
/// contradict each other, these stay, for later checks to refuse. Reads the number of tokens. Collective.
void fit_preset(Context& context, TrainLmOptions& options);

} // namespace orthant::cli
