#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Finds the fastest library for every kind of dense product of a training, measured on all ranks at once.

#include "cli/options/command.hpp"
#include "pmm/gemm/gemm_choice.hpp"

namespace orthant::cli {

/// Least number of rows of a tall operand.
inline constexpr std::int64_t least_tuned_rows = 4'096;

/// Returns a table for the processor of rank 0, and prints a line of JSON per kind of product. `rows`: rows of the tall operands per
/// rank. `repeat`: number of repeats, as in time_in_turn(). Afterwards local_gemm() uses the table. Collective. Throws UserError on a
/// device, where the vendor's library runs all products.
[[nodiscard]] pmm::GemmTable tune_gemm(Context& context, std::int64_t rows, std::int64_t repeat);

} // namespace orthant::cli
