#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// --gemm-math: what dense products of fp32 numbers multiply in.

#include "cli/options/command.hpp"

#include <string>

namespace orthant::cli {

void add_gemm_math_option(Command& command, std::string& math);

/// For all products of this run; before the first of them. Throws UserError where this build multiplies in
/// fp32 only, or the numbers are not fp32 (`dtype` as --compute-dtype takes it).
void choose_gemm_math(std::string const& math, std::string const& dtype);

/// "fp32", or "fp32, tf32, bf16": those of this build.
[[nodiscard]] std::vector<std::string> gemm_maths();

} // namespace orthant::cli
