#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Name of the library that multiplies dense matrices, and a check whether its kernels fit the processor.
//
// OpenBLAS chooses its kernels (the "core type") by the processor's model number when it is loaded. It may mistake a model that is newer
// than the library for an old one: OpenBLAS 0.3.21 treats an Intel processor of 2023 as a Prescott of 2004 and multiplies with SSE. If the
// library was built with DYNAMIC_ARCH, the environment variable OPENBLAS_CORETYPE selects the core type. These functions compute its
// value, and cli/machine/blas_core sets it.

#include "runtime/machine/processor.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace orthant::pmm {

struct BlasLibrary {
  std::string name;            // "OpenBLAS 0.3.21", "cuBLAS"
  std::string core;            // core type in use, such as "SkylakeX"; empty if not reported
  bool has_many_cores = false; // true for OpenBLAS built with DYNAMIC_ARCH
};

/// Library that this process multiplies with. Also works with another BLAS than OpenBLAS, whose `core` is empty.
[[nodiscard]] BlasLibrary find_blas_library();

/// Vector instructions that a core type of OpenBLAS multiplies with; unknown for an unknown core type. Case is ignored.
[[nodiscard]] runtime::Vectors vectors_of_core(std::string_view core);

/// True if both names denote the same core type. Case is ignored.
[[nodiscard]] bool is_same_core(std::string_view left, std::string_view right);

/// True if the kernels in use have narrower vectors than the processor. False if either is unknown.
[[nodiscard]] bool has_slow_core(BlasLibrary const& library, runtime::Processor const& processor);

/// Returns a better value for OPENBLAS_CORETYPE, whose current value is `coretype`. Returns nothing if the library is fast enough, if it
/// has only one core type, or if the variable is already set.
[[nodiscard]] std::optional<std::string> better_core(BlasLibrary const& library,
                                                     runtime::Processor const& processor,
                                                     std::optional<std::string> const& coretype);

} // namespace orthant::pmm
