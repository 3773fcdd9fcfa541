#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Recognises a job that Slurm started as many single processes: srun without the plugin that the MPI library
// needs leaves every task a world of its own, and each would run the whole job and write the same files.

#include <functional>
#include <optional>
#include <string>

namespace orthant::runtime {

/// Value of an environment variable, nullptr where it is not set.
using Getenv = std::function<char const*(char const*)>;

/// What is wrong and what would be right, or nothing. SLURM_NTASKS is of no use here: batch scripts and
/// mpirun inside an allocation set it too.
[[nodiscard]] std::optional<std::string> find_slurm_mistake(int mpi_size, Getenv const& getenv);

/// Throws UserError where there is such a mistake; its text is empty on all tasks but the first, so that it
/// is printed once.
void check_slurm_launch(int mpi_size);

} // namespace orthant::runtime
