// SPDX-License-Identifier: Apache-2.0
#include "pmm/gemm/blas_library.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace orthant::pmm {
namespace {

using runtime::Vectors;

// The kernels for Excavator and earlier processors use AVX and FMA in halves of 16 bytes, as these processors do. Wider kernels are not
// faster there.
constexpr std::array<std::pair<std::string_view, Vectors>, 24> known_cores{{
    {"generic", Vectors::sse},      {"prescott", Vectors::sse},      {"core2", Vectors::sse},
    {"penryn", Vectors::sse},       {"dunnington", Vectors::sse},    {"nehalem", Vectors::sse},
    {"atom", Vectors::sse},         {"nano", Vectors::sse},          {"opteron", Vectors::sse},
    {"opteron_sse3", Vectors::sse}, {"athlon", Vectors::sse},        {"barcelona", Vectors::sse},
    {"bobcat", Vectors::sse},       {"northwood", Vectors::sse},     {"sandybridge", Vectors::avx},
    {"bulldozer", Vectors::avx},    {"piledriver", Vectors::avx2},   {"steamroller", Vectors::avx2},
    {"excavator", Vectors::avx2},   {"haswell", Vectors::avx2},      {"zen", Vectors::avx2},
    {"skylakex", Vectors::avx512},  {"cooperlake", Vectors::avx512}, {"sapphirerapids", Vectors::avx512},
}};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

/// Returns the core type with the best kernels for fp32 and fp64. Cooperlake and SapphireRapids have the kernels of SkylakeX and
/// additional ones for bfloat16, and OpenBLAS before 0.3.22 does not know these two names.
std::string core_for(runtime::Processor const& processor) {
  if (processor.vectors == Vectors::avx512) return "SkylakeX";
  if (processor.vectors == Vectors::avx) return "Sandybridge";
  auto const is_zen = processor.vendor == "AuthenticAMD" || processor.vendor == "HygonGenuine";
  return is_zen ? "Zen" : "Haswell";
}

} // namespace

Vectors vectors_of_core(std::string_view core) {
  auto const found =
      std::ranges::find(known_cores, lower_case(core), &std::pair<std::string_view, Vectors>::first);
  return found == known_cores.end() ? Vectors::unknown : found->second;
}

bool is_same_core(std::string_view left, std::string_view right) {
  return lower_case(left) == lower_case(right);
}

bool has_slow_core(BlasLibrary const& library, runtime::Processor const& processor) {
  auto const used = vectors_of_core(library.core);
  return used != Vectors::unknown && used < processor.vectors;
}

std::optional<std::string> better_core(BlasLibrary const& library, runtime::Processor const& processor,
                                       std::optional<std::string> const& coretype) {
  if (coretype || !library.has_many_cores || !has_slow_core(library, processor)) return std::nullopt;
  return core_for(processor);
}

} // namespace orthant::pmm
