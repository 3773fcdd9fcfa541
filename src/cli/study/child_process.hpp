#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Programs that are started and waited for: schedulers, and launchers of jobs on this machine. They get the environment that this
// program was started with. What MPI has added to it since then would make a launcher take itself for a rank.

#include <string>
#include <utility>
#include <vector>

namespace orthant::cli {

inline constexpr int program_not_found = 127; // as shells say it

struct ChildResult {
  int status = 0; // as of a shell: program_not_found, 128 + the signal that ended it
  std::string output;
  std::string errors;
};

/// Runs the program `command[0]`, found by PATH, to its end. `variables` are set in its environment.
[[nodiscard]] ChildResult run_child(std::vector<std::string> const& command,
                                    std::vector<std::pair<std::string, std::string>> const& variables = {});

} // namespace orthant::cli
