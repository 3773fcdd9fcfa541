#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// --gemm-math: what dense products of fp32 numbers multiply in; --gemm-table: which library multiplies.

#include "cli/options/command.hpp"

#include <string>
#include <utility>
#include <vector>

namespace orthant::cli {

void add_gemm_math_option(Command& command, std::string& math);

/// For all products of this run; before the first of them. Throws UserError where this build multiplies in
/// fp32 only, or the numbers are not fp32 (`dtype` as --compute-dtype takes it).
void choose_gemm_math(std::string const& math, std::string const& dtype);

/// --gemm-table: which library multiplies what (pmm/gemm/gemm_choice.hpp).
void add_gemm_table_option(Command& command, std::string& path);

/// For all products from now on, the same on all ranks: by the table in the file `path`, or the built-in one if it is
/// empty, and the processor of rank 0. The run's record says what was chosen. Collective. Throws UserError on all ranks
/// if the file is no such table.
void choose_gemm_libraries(Context& context, std::string const& path);

/// What weights files and checkpoints record of that: {"dense_libraries", ..}.
[[nodiscard]] std::pair<std::string, std::string> gemm_record();

/// "fp32", or "fp32, tf32, bf16": those of this build.
[[nodiscard]] std::vector<std::string> gemm_maths();

} // namespace orthant::cli
