#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options of train that have no effect together with the others. Values from the environment or a file may be meant for other trainings, so
// they are only reported. Flags are of two kinds:
//
//   a mistake      asks for something that the training does not do, such as --batch without --mode minibatch: an error
//   no meaning the network has no such part, such as a norm without hidden layers: a warning, and the option is ignored

#include "cli/training/train_options.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

/// Throws UserError for the first flag that is a mistake, with a message that says what would give it an effect. Logs the other options
/// once, on the root, and sets them to the values that the network has. Same result on all ranks; not collective.
void settle_idle_options(Context const& context, TrainOptions& options);

/// Names of the options without a meaning for the network of `options`, given or not.
[[nodiscard]] std::vector<std::string> options_without_meaning(TrainOptions const& options);

/// Throws UserError for the first idle option of the optimizer, which every training has.
void require_effective_optimizer_options(Context const& context, OptimizerOptions const& options);

} // namespace orthant::cli
