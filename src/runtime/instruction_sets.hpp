#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Host kernels that are compiled from one source once per instruction set (orthant_kernel_sources() in cmake/OrthantTarget.cmake). X.hpp
// declares `template<InstructionSet set, class T> Kernels<T> x_kernels()`. X.inc defines it for InstructionSet::ORTHANT_INSTRUCTION_SET,
// whose vectors have ORTHANT_VECTOR_BYTES bytes. All other definitions in X.inc are in anonymous namespaces.

#include <cstdint>
#include <type_traits>
#include <vector>

namespace orthant::runtime {

/// Target of the compiler: its default; on x86-64 also AVX2 with FMA, and AVX-512 (its parts F and VL).
enum class InstructionSet : std::uint8_t { baseline, avx2, avx512 };

/// True if this build has kernels for the instruction set and the processor supports it.
[[nodiscard]] inline bool has_instructions([[maybe_unused]] InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (set == InstructionSet::avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
#endif
  return set == InstructionSet::baseline;
}

/// The results of `kernels_of(std::integral_constant<InstructionSet, set>())` for all sets that has_instructions(), the widest last.
template<class KernelsOf>
[[nodiscard]] auto for_supported_sets(KernelsOf const& kernels_of) {
  using enum InstructionSet;
  std::vector all{kernels_of(std::integral_constant<InstructionSet, baseline>())};
#if defined(__x86_64__)
  if (has_instructions(avx2)) all.push_back(kernels_of(std::integral_constant<InstructionSet, avx2>()));
  if (has_instructions(avx512)) all.push_back(kernels_of(std::integral_constant<InstructionSet, avx512>()));
#endif
  return all;
}

} // namespace orthant::runtime
