#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options of number formats and dense products: --precision sets all formats of a training, --gemm-math the format that fp32 products
// multiply in, --gemm-table the libraries that multiply.

#include "cli/options/command.hpp"
#include "pmm/vendor/vendor_gemm.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace orthant::cli {

/// Whether activations of a network can have 16 bits in memory, or only operands of products and messages.
enum class Activations : std::uint8_t { of_16_bits, of_fp32 };
/// `activations`: of the networks of this command that can have the most.
void add_precision_option(Command& command, std::string& word, Activations activations);
/// The options that a word of --precision stands for, as {"gemm-math": "bf16", ..}.
[[nodiscard]] nlohmann::ordered_json options_of_precision(std::string const& word, Activations activations);

void add_gemm_math_option(Command& command, std::string& math);

/// The format of a word of --gemm-math.
[[nodiscard]] pmm::GemmMath gemm_math_named(std::string const& word);

/// Sets the math of all dense products of this run; must be called before the first one. Throws UserError if this build does not support
/// `math`, or if `math` is not fp32 although `dtype` (the value of --compute-dtype) is another type than fp32.
void choose_gemm_math(std::string const& math, std::string const& dtype);

/// Declares --gemm-table, which library multiplies which products (pmm/gemm/gemm_choice.hpp).
void add_gemm_table_option(Command& command, std::string& path);

/// Chooses the libraries of all further products, the same on all ranks: from the table in the file `path` (built-in table if it is
/// empty) and the processor of rank 0. Adds the choice to the run's record. Collective. Throws UserError on all ranks if the file is no
/// such table.
void choose_gemm_libraries(Context& context, std::string const& path);

/// Entry of weights files and checkpoints that names the libraries: {"dense_libraries", ..}.
[[nodiscard]] std::pair<std::string, std::string> gemm_record();

/// Math modes of this build, of "fp32", "tf32" and "bf16".
[[nodiscard]] std::vector<std::string> gemm_maths();

} // namespace orthant::cli
