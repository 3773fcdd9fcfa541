#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// OpenBLAS with kernels that fit the processor, for the program only (pmm/gemm/blas_library.hpp says why).
// OpenBLAS reads OPENBLAS_CORETYPE when it is loaded, before main; so the program sets it and executes itself
// once more. That happens before MPI_Init: process number, pipes, and what mpirun or srun put into the
// environment stay as they are.

#include "runtime/observe/log.hpp"

#include <string>

namespace orthant::cli {

/// Executes this program again, with the same arguments, if another core type fits the processor better than
/// OpenBLAS's choice. Returns if none does, if the user has set OPENBLAS_CORETYPE, the second time, or if it
/// cannot. Call it first in main.
void restart_with_better_core() noexcept;

/// "OpenBLAS 0.3.21, kernels of SkylakeX (its own choice was Prescott)".
[[nodiscard]] std::string describe_blas();

/// Says once, on rank 0, if dense products are slow because OpenBLAS's kernels do not fit the processor, and
/// nothing could be done or the restart changed nothing.
void warn_of_slow_core(runtime::Log& log);

} // namespace orthant::cli
