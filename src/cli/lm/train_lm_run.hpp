#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// orthant train-lm, from options to the final lines.

#include "cli/lm/train_lm_options.hpp"

namespace orthant::cli {

/// Returns the exit status. Collective.
[[nodiscard]] int train_language_model(TrainLmOptions const& options, Context& context);

} // namespace orthant::cli
