// SPDX-License-Identifier: Apache-2.0
#include "pmm/gemm/gemm_choice.hpp"

#include <algorithm>

namespace orthant::pmm {
namespace {

template<class T>
bool fits(std::optional<T> const& wanted, T const& found) {
  return !wanted || *wanted == found;
}

} // namespace

GemmShape gemm_shape(GemmExtents const& extents) {
  constexpr auto most_of_small = 262'144.0;
  constexpr auto least_ratio = std::int64_t{8};
  constexpr auto narrow = std::int64_t{64};
  auto const [m, n, k] = extents;
  if (static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) < most_of_small)
    return GemmShape::small;
  if (k / least_ratio >= std::max(m, n))
    return std::min(m, n) < narrow ? GemmShape::long_sum_narrow : GemmShape::long_sum;
  if (m / least_ratio >= std::max(n, k)) return n < narrow ? GemmShape::tall_narrow : GemmShape::tall;
  return GemmShape::other;
}

bool GemmTable::Processors::fit(runtime::Processor const& processor) const {
  return vendor == processor.vendor && fits(family, processor.family) && fits(model, processor.model) &&
         fits(vectors, processor.vectors) && fits(has_bf16_tiles, processor.has_bf16_tiles);
}

std::string_view library_of(GemmTable const& table, runtime::Processor const& processor,
                            GemmCase const& kind) {
  auto const entry = std::ranges::find_if(
      table.processors, [&](GemmTable::Processors const& processors) { return processors.fit(processor); });
  if (entry != table.processors.end()) {
    auto const choice = std::ranges::find(entry->choices, kind, &GemmTable::Choice::kind);
    if (choice != entry->choices.end()) return choice->library;
  }
  return kind.numbers == GemmNumbers::bf16 ? widened_name : openblas_name;
}

} // namespace orthant::pmm
