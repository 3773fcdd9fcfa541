// SPDX-License-Identifier: Apache-2.0
//
// Entry point of the orthant program.

#include "cli/machine/blas_core.hpp"
#include "cli/program.hpp"
#include "runtime/job/job_end.hpp"

#include <string_view>

int main(int argc, char** argv) {
  orthant::cli::restart_with_better_core();
  // Help and error messages need no device, so Kokkos starts only after the command line has been read.
  orthant::runtime::EnvironmentOptions options;
  options.starts_kokkos = false;
  options.checks_launch = argc < 2 || std::string_view(argv[1]) != "doctor"; // doctor has its own checks
  return orthant::runtime::run_main(argc, argv, options, orthant::cli::run_program);
}
