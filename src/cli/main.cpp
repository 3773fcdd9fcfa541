// SPDX-License-Identifier: Apache-2.0
//
// The orthant program.

#include "cli/machine/blas_core.hpp"
#include "cli/program.hpp"
#include "runtime/job/job_end.hpp"

#include <string_view>

int main(int argc, char** argv) {
  orthant::cli::restart_with_better_core();
  // Help and mistakes need no device, so Kokkos starts once the command line is understood.
  orthant::runtime::EnvironmentOptions options;
  options.starts_kokkos = false;
  options.checks_launch = argc < 2 || std::string_view(argv[1]) != "doctor"; // which says more of it
  return orthant::runtime::run_main(argc, argv, options, orthant::cli::run_program);
}
