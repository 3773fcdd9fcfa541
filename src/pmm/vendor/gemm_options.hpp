#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How a dense product of one rank is to be done.

#include <cstdint>

namespace orthant::pmm {

enum class Transpose : std::uint8_t { no, yes };

/// What a device multiplies fp32 numbers in; sums are fp32 in each. tf32 keeps 10 bits of the mantissa, bf16
/// keeps 7: operands are rounded in memory. fp64 products are never rounded. (NVIDIA_TF32_OVERRIDE in the
/// environment overrules cuBLAS's callers: 0 forbids tf32, 1 makes fp32 tf32.)
enum class GemmMath : std::uint8_t { fp32, tf32, bf16 };

} // namespace orthant::pmm
