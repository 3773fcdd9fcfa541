// SPDX-License-Identifier: Apache-2.0
//
// Entry point of the orthant program.

#include "cli/program.hpp"

int main(int argc, char** argv) {
  return orthant::cli::main_of(argc, argv);
}
