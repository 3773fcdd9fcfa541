#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant train --mode minibatch, from options to the final table.

#include "cli/options/command.hpp"
#include "cli/training/train_options.hpp"

namespace orthant::cli {

/// Returns the exit status. Collective.
[[nodiscard]] int train_minibatch(TrainOptions const& options, Context& context);

} // namespace orthant::cli
