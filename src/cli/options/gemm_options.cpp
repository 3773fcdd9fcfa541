// SPDX-License-Identifier: Apache-2.0
#include "cli/options/gemm_options.hpp"

#include "pmm/gemm/gemm_choice.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/text_file.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <tuple>
#include <utility>

namespace orthant::cli {
namespace {

using pmm::GemmMath;

constexpr std::array<std::pair<char const*, GemmMath>, 3> math_words{
    {{"fp32", GemmMath::fp32}, {"tf32", GemmMath::tf32}, {"bf16", GemmMath::bf16}}};

/// Processor of rank 0, on all ranks, so that ranks on different processors use the same libraries.
runtime::Processor processor_of_root(runtime::Communicator const& world) {
  auto processor = runtime::find_processor();
  auto text = nlohmann::json{{"name", processor.name},
                             {"vendor", processor.vendor},
                             {"vectors", static_cast<int>(processor.vectors)},
                             {"family", processor.family},
                             {"model", processor.model},
                             {"bf16_tiles", processor.has_bf16_tiles}}
                  .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  runtime::broadcast_text(world, text, 0);
  auto const json = nlohmann::json::parse(text);
  return {json.at("name"),   json.at("vendor"), static_cast<runtime::Vectors>(json.at("vectors").get<int>()),
          json.at("family"), json.at("model"),  json.at("bf16_tiles")};
}

pmm::GemmTable read_gemm_table(runtime::Communicator const& world, std::filesystem::path const& path) {
  auto const text = runtime::read_table_file(
      world, path, [&](std::string_view read) { std::ignore = pmm::parse_gemm_table(read, path); });
  return pmm::parse_gemm_table(text, path);
}

} // namespace

void add_gemm_math_option(Command& command, std::string& math) {
  command.option(
      "--gemm-math", math,
      "Format to which dense products of fp32 numbers round their operands: fp32 (not at all), bf16 "
      "(on CUDA devices also for attention) or, on CUDA devices, tf32; sums are fp32",
      one_of({"fp32", "tf32", "bf16"}));
}

void add_precision_option(Command& command, std::string& word, Activations activations) {
  auto const has_16_bits = activations == Activations::of_16_bits;
  command.option("--precision", word,
                 fmt::format("Number formats, for the options that are not given. bf16: {}--gemm-math bf16 "
                             "--comm-dtype bf16; {}tf32: --gemm-math tf32; fp64: --compute-dtype fp64",
                             has_16_bits ? "--operand-dtype bf16 --comm-dtype bf16 with --model gcn and no "
                                           "--jump, else "
                                         : "",
                             has_16_bits ? "fp16: --operand-dtype fp16 --comm-dtype fp16; " : ""),
                 has_16_bits ? one_of({"fp32", "tf32", "bf16", "fp16", "fp64"})
                             : one_of({"fp32", "tf32", "bf16", "fp64"}));
}

nlohmann::ordered_json options_of_precision(std::string const& word, Activations activations) {
  if (word == "fp32") return nlohmann::ordered_json::object();
  if (word == "fp64") return {{"compute-dtype", word}};
  if (word == "tf32") return {{"gemm-math", word}};
  auto const* const of_products =
      word == "fp16" || activations == Activations::of_16_bits ? "operand-dtype" : "gemm-math";
  return {{of_products, word}, {"comm-dtype", word}};
}

GemmMath gemm_math_named(std::string const& word) {
  return std::ranges::find(math_words, word, [](auto const& each) { return each.first; })->second;
}

void choose_gemm_math(std::string const& math, std::string const& dtype) {
  auto const value = gemm_math_named(math);
  if (!pmm::has_gemm_math(value))
    runtime::throw_user("--gemm-math {} (also of --precision) needs a build for CUDA devices{}; this one "
                        "multiplies on {}: leave it out",
                        math, value == GemmMath::bf16 ? " and one of compute capability 8.0 or newer" : "",
                        runtime::DefaultExec::name());
  if (value != GemmMath::fp32 && dtype != "fp32")
    runtime::throw_user("--gemm-math {} (also of --precision) rounds products of fp32; leave it out where "
                        "numbers are {}",
                        math, dtype);
  pmm::set_gemm_math(value);
}

void add_gemm_table_option(Command& command, std::string& path) {
  command.input("--gemm-table", path,
                "Table that assigns a library to each shape of dense products (bench gemm --tune writes "
                "one); default: the built-in table");
}

void choose_gemm_libraries(Context& context, std::string const& path) {
  auto const& world = context.world();
  auto const processor = processor_of_root(world);
  auto const table = path.empty() ? pmm::built_in_gemm_table() : read_gemm_table(world, path);
  if (!path.empty() && world.is_root() && std::ranges::none_of(table.processors, [&](auto const& processors) {
        return processors.fit(processor);
      }))
    context.log().warn("the table '{}' has no entry for {} (family {}, model {}, {}): OpenBLAS multiplies",
                       path, processor.name, processor.family, processor.model, name_of(processor.vectors));
  pmm::set_gemm_choice(table, processor);
  context.run_record["gemm_libraries"] = {
      {"table", path.empty() ? "built-in" : path},
      {"choice", nlohmann::ordered_json::parse(pmm::describe_gemm_choice())}};
}

std::pair<std::string, std::string> gemm_record() {
  return {"dense_libraries", pmm::describe_gemm_choice()};
}

std::vector<std::string> gemm_maths() {
  std::vector<std::string> known;
  for (auto const& [word, value] : math_words)
    if (pmm::has_gemm_math(value)) known.emplace_back(word);
  return known;
}

} // namespace orthant::cli
