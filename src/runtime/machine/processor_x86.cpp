// SPDX-License-Identifier: Apache-2.0
#include "runtime/machine/processor.hpp"

#include <array>
#include <cpuid.h>

namespace orthant::runtime {
namespace {

using Registers = std::array<unsigned, 4>; // eax, ebx, ecx, edx

/// Zeros if the processor does not have the leaf.
Registers read_cpuid(unsigned leaf) {
  Registers r{};
  if (__get_cpuid(leaf, &r[0], &r[1], &r[2], &r[3]) == 0) return {};
  return r;
}

void append_characters(std::string& text, unsigned word) {
  for (unsigned byte = 0; byte < sizeof word; ++byte)
    if (auto const character = static_cast<char>(word >> (8 * byte)); character != '\0') text += character;
}

std::string find_vendor() {
  auto const r = read_cpuid(0);
  std::string vendor;
  for (auto const word : {r[1], r[3], r[2]})
    append_characters(vendor, word);
  return vendor;
}

std::string find_name() {
  constexpr auto first_leaf = 0x80000002U;
  std::string name;
  for (unsigned leaf = first_leaf; leaf < first_leaf + 3; ++leaf)
    for (auto const word : read_cpuid(leaf))
      append_characters(name, word);
  auto const begin = name.find_first_not_of(' ');
  if (begin == std::string::npos) return "unknown";
  return name.substr(begin, name.find_last_not_of(' ') - begin + 1);
}

Vectors find_vectors() { // the compiler's built-in asks the operating system, too
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return Vectors::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Vectors::avx2;
  return __builtin_cpu_supports("avx") ? Vectors::avx : Vectors::sse;
}

} // namespace

Processor find_processor() {
  return {find_name(), find_vendor(), find_vectors()};
}

} // namespace orthant::runtime
