#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// From the command line to a subcommand at work: finds it, reads its options from flags, environment and
// file, opens metrics and trace, runs it.

#include "runtime/job/environment.hpp"

namespace orthant::cli {

/// Runs what `environment.arguments()` ask for and returns the exit status. Help and version go to stdout of
/// rank 0. Throws UserError for the user's mistakes. Collective over all ranks.
[[nodiscard]] int run_program(runtime::Environment& environment);

} // namespace orthant::cli
