#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Processor of this rank: its name and model, and the widest vectors that the processor and the operating system support.

#include <cstdint>
#include <string>
#include <string_view>

namespace orthant::runtime {

/// Instruction sets for vector arithmetic, in ascending width. `unknown` if not x86-64.
enum class Vectors : std::uint8_t {
  unknown,
  sse,    // 16 bytes
  avx,    // 32 bytes, no fused multiply-add
  avx2,   // 32 bytes with fused multiply-add (FMA3)
  avx512, // 64 bytes: the parts F, CD, DQ, BW and VL, as all processors with AVX-512 since Skylake-X have
};

/// "AVX-512" and so on, or "unknown".
[[nodiscard]] constexpr std::string_view name_of(Vectors vectors) {
  switch (vectors) {
  case Vectors::unknown:
    break;
  case Vectors::sse:
    return "SSE";
  case Vectors::avx:
    return "AVX";
  case Vectors::avx2:
    return "AVX2";
  case Vectors::avx512:
    return "AVX-512";
  }
  return "unknown";
}

struct Processor {
  std::string name;   // "AMD EPYC 9654 96-Core Processor"
  std::string vendor; // "GenuineIntel", "AuthenticAMD"; empty if not x86-64
  Vectors vectors = Vectors::unknown;
  int family = 0,
      model = 0; // from cpuid, such as 6 and 207; a virtual machine may report other numbers; 0 if not x86-64
  bool has_bf16_tiles = false; // matrix units for bf16 (AMX) that the operating system has enabled
};

[[nodiscard]] Processor find_processor();

} // namespace orthant::runtime
