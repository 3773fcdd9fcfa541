#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Runs the program: finds the subcommand, reads its options from flags, environment and file, opens metrics and trace, and runs it.

#include "runtime/job/environment.hpp"

namespace orthant::cli {

/// Runs the command that `environment.arguments()` name and returns the exit status. Prints help and version to stdout of rank 0.
/// Throws UserError for mistakes of the user. Collective over all ranks.
[[nodiscard]] int run_program(runtime::Environment& environment);

} // namespace orthant::cli
