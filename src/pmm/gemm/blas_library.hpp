#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The library that multiplies dense matrices, and whether its kernels fit the processor.
//
// OpenBLAS chooses its kernels ("core type") by the processor's model number when it is loaded. A model newer
// than the library may count as an old one: OpenBLAS 0.3.21 takes an Intel processor of 2023 for a Prescott
// of 2004 and multiplies with SSE. OPENBLAS_CORETYPE names the core type instead, if the library was built
// with DYNAMIC_ARCH. These functions decide what to set it to, and cli/machine/blas_core sets it.

#include "runtime/machine/processor.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace orthant::pmm {

struct BlasLibrary {
  std::string name;            // "OpenBLAS 0.3.21", "cuBLAS"
  std::string core;            // whose kernels it uses, "SkylakeX"; empty if it does not say
  bool has_many_cores = false; // OpenBLAS built with DYNAMIC_ARCH
};

/// What this process multiplies with. Needs nothing of OpenBLAS: another BLAS has no core.
[[nodiscard]] BlasLibrary find_blas_library();

/// The vectors that one of OpenBLAS's core types multiplies with; unknown if the core type is. Case is ignored.
[[nodiscard]] runtime::Vectors vectors_of_core(std::string_view core);

/// Compares the names of two core types. Case is ignored.
[[nodiscard]] bool is_same_core(std::string_view left, std::string_view right);

/// Whether the kernels in use have narrower vectors than the processor. False if either is unknown.
[[nodiscard]] bool has_slow_core(BlasLibrary const& library, runtime::Processor const& processor);

/// The core type to name in OPENBLAS_CORETYPE. None if the library is fast enough, if it cannot choose, or if
/// `coretype`, the variable's value, is set already.
[[nodiscard]] std::optional<std::string> better_core(BlasLibrary const& library,
                                                     runtime::Processor const& processor,
                                                     std::optional<std::string> const& coretype);

} // namespace orthant::pmm
