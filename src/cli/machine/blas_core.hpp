#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Selects the OpenBLAS kernels that fit the processor (pmm/gemm/blas_library.hpp explains why); only the program does this, not the
// library. OpenBLAS reads OPENBLAS_CORETYPE when it is loaded, before main, so the program sets the variable and executes itself again.
// The restart happens before MPI_Init; the process id, pipes and the variables of mpirun or srun stay unchanged.

#include "runtime/observe/log.hpp"

#include <string>

namespace orthant::cli {

/// Executes this program again, with the same arguments, if another core type fits the processor better than OpenBLAS's choice. Returns
/// if there is no better one, if the user has set OPENBLAS_CORETYPE, in the second execution, or if the restart fails. Must be called
/// first in main.
void restart_with_better_core() noexcept;

/// Description of the library: "OpenBLAS 0.3.21, kernels of SkylakeX (its own choice was Prescott)".
[[nodiscard]] std::string describe_blas();

/// Warns once, on rank 0, if dense products are slow because OpenBLAS's kernels do not fit the processor and a restart was impossible or
/// had no effect.
void warn_of_slow_core(runtime::Log& log);

} // namespace orthant::cli
