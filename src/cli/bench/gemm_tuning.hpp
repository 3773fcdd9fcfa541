#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which library multiplies fastest here: measured for every kind of products that training has, all ranks at once.

#include "cli/options/command.hpp"
#include "pmm/gemm/gemm_choice.hpp"

namespace orthant::cli {

/// With fewer rows a tall operand is not tall.
inline constexpr std::int64_t least_tuned_rows = 4'096;

/// A table for rank 0's processor. Prints a line of JSON per kind of products. `rows` per rank of the tall operands;
/// `repeat` as of bench. Collective. Leaves local_gemm() with the table. Throws UserError on a device, whose vendor's
/// library multiplies everything.
[[nodiscard]] pmm::GemmTable tune_gemm(Context& context, std::int64_t rows, std::int64_t repeat);

} // namespace orthant::cli
