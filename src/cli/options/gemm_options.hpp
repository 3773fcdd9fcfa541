#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options of number formats and dense products: --precision sets all formats of a training, --gemm-math the format that fp32 products
// multiply in, --gemm-table the libraries that multiply.

#include "cli/options/command.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::cli {

/// A word of --precision, and the options that it stands for.
struct Precision {
  std::string_view word, options;
};
inline constexpr std::array<Precision, 5> precisions_of_graph_networks{
    {{"fp32", ""},
     {"tf32", "--gemm-math tf32"},
     {"bf16", "--operand-dtype bf16 --comm-dtype bf16"},
     {"fp16", "--operand-dtype fp16 --comm-dtype fp16"},
     {"fp64", "--compute-dtype fp64"}}};
inline constexpr std::array<Precision, 4> precisions_of_language_models{
    {{"fp32", ""},
     {"tf32", "--gemm-math tf32"},
     {"bf16", "--gemm-math bf16 --comm-dtype bf16"},
     {"fp64", "--compute-dtype fp64"}}};

void add_precision_option(Command& command, std::string& word, std::span<Precision const> precisions);
/// The options of a word, as {"gemm-math": "bf16", ..}.
[[nodiscard]] nlohmann::ordered_json options_of_precision(std::span<Precision const> precisions,
                                                          std::string_view word);

void add_gemm_math_option(Command& command, std::string& math);

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
