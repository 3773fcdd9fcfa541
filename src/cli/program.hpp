#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Runs the program: finds the subcommand, reads its options from flags, environment and file, opens metrics and trace, and runs it.
// A program with convolutions of its own registers them and then calls main_of() (docs/extend/convolution.md).

#include "runtime/job/environment.hpp"

namespace orthant::cli {

/// Runs the command that `environment.arguments()` name and returns the exit status. Prints help and version to stdout of rank 0.
/// Throws UserError for mistakes of the user. Collective over all ranks.
[[nodiscard]] int run_program(runtime::Environment& environment);

/// All of main(): starts the environment, runs the program and returns the exit status. Must be the only call of its kind in a process.
[[nodiscard]] int main_of(int argc, char** argv);

} // namespace orthant::cli
