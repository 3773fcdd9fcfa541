// SPDX-License-Identifier: Apache-2.0
#include "cli/options/gemm_math.hpp"

#include "pmm/gemm/local_gemm.hpp"

#include <array>
#include <utility>

namespace orthant::cli {
namespace {

using pmm::GemmMath;

constexpr std::array<std::pair<char const*, GemmMath>, 3> words{
    {{"fp32", GemmMath::fp32}, {"tf32", GemmMath::tf32}, {"bf16", GemmMath::bf16}}};

} // namespace

void add_gemm_math_option(Command& command, std::string& math) {
  command.option(
      "--gemm-math", math,
      "What dense products of fp32 multiply in: fp32, or tf32 or bf16 on CUDA devices; sums are fp32",
      one_of({"fp32", "tf32", "bf16"}));
}

void choose_gemm_math(std::string const& math, std::string const& dtype) {
  for (auto const& [word, value] : words) {
    if (math != word) continue;
    if (!pmm::has_gemm_math(value))
      runtime::throw_user(
          "--gemm-math {} needs a build for CUDA devices; this one multiplies on {}, in fp32 only: "
          "leave it out",
          math, runtime::DefaultExec::name());
    if (value != GemmMath::fp32 && dtype != "fp32")
      runtime::throw_user("--gemm-math {} rounds products of fp32; leave it out where numbers are {}", math,
                          dtype);
    pmm::set_gemm_math(value);
  }
}

std::vector<std::string> gemm_maths() {
  std::vector<std::string> known;
  for (auto const& [word, value] : words)
    if (pmm::has_gemm_math(value)) known.emplace_back(word);
  return known;
}

} // namespace orthant::cli
