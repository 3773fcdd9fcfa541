// SPDX-License-Identifier: Apache-2.0
#include "runtime/machine/processor.hpp"

#include <array>
#include <cpuid.h>
#include <utility>

namespace orthant::runtime {
namespace {

using Registers = std::array<unsigned, 4>; // eax, ebx, ecx, edx

/// The registers of a leaf; zeros if the processor does not have the leaf.
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

Vectors find_vectors() { // the compiler's built-in also checks the operating system
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return Vectors::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Vectors::avx2;
  return __builtin_cpu_supports("avx") ? Vectors::avx : Vectors::sse;
}

/// Intel's manual, volume 2A, CPUID leaf 1: the extended fields count only for some families.
std::pair<int, int> find_family_and_model() {
  auto const word = read_cpuid(1)[0];
  auto const bits = [&](unsigned first, unsigned count) {
    return static_cast<int>(word >> first & ((1U << count) - 1));
  };
  auto const family = bits(8, 4);
  auto const is_extended = family == 6 || family == 15;
  return {family == 15 ? family + bits(20, 8) : family, bits(4, 4) + (is_extended ? bits(16, 4) << 4 : 0)};
}

/// True if the processor has AMX tiles and multiplies bf16 in them, and the operating system saves the tiles (XCR0).
bool find_bf16_tiles() {
  constexpr auto saves_registers = 1U << 27; // leaf 1, ecx
  constexpr auto bf16_in_tiles = 1U << 22;   // leaf 7, edx
  constexpr auto tiles = 1U << 24;
  constexpr auto both_tile_states = 3U << 17;
  Registers r{};
  if ((read_cpuid(1)[2] & saves_registers) == 0) return false;
  if (__get_cpuid_count(7, 0, &r[0], &r[1], &r[2], &r[3]) == 0) return false;
  if ((r[3] & bf16_in_tiles) == 0 || (r[3] & tiles) == 0) return false;
  unsigned low = 0;
  [[maybe_unused]] unsigned high = 0; // set by the instruction; nvcc warns that it is unused
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & both_tile_states) == both_tile_states;
}

} // namespace

Processor find_processor() {
  auto const [family, model] = find_family_and_model();
  return {find_name(), find_vendor(), find_vectors(), family, model, find_bf16_tiles()};
}

} // namespace orthant::runtime
