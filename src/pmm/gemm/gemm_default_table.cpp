// SPDX-License-Identifier: Apache-2.0
#include "pmm/gemm/gemm_choice.hpp"

namespace orthant::pmm {
namespace {

constexpr std::string_view text = R"({
 "table": "gemm_libraries",
 "format": 1,
 "processors": []
})";

} // namespace

GemmTable const& built_in_gemm_table() {
  static GemmTable const table = parse_gemm_table(text, "built-in");
  return table;
}

} // namespace orthant::pmm
