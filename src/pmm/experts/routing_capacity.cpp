// SPDX-License-Identifier: Apache-2.0
//
// Choices that experts of limited capacity keep.
#include "pmm/experts/routing.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <cmath>

namespace orthant::pmm {

std::int64_t capacity_of(double factor, std::int64_t num_tokens, std::int64_t num_choices,
                         std::int64_t num_experts) {
  auto const share = static_cast<double>(num_choices * num_tokens) / static_cast<double>(num_experts);
  // A factor such as 1.1 is not exact in binary; its rounding error must not add a slot.
  constexpr auto rounding = 1e-12;
  // No expert is chosen more often than there are tokens.
  return static_cast<std::int64_t>(std::clamp(std::ceil(factor * share * (1 - rounding)), 1.0,
                                              static_cast<double>(std::max(num_tokens, std::int64_t{1}))));
}

std::int64_t ExpertCounts::chosen(std::int64_t expert) const {
  std::int64_t sum = 0;
  for (auto place = expert; place < std::ssize(total); place += num_experts)
    sum += total[static_cast<std::size_t>(place)];
  return sum;
}

std::int64_t ExpertCounts::num_beyond(std::int64_t capacity) const {
  std::int64_t sum = 0;
  for (std::int64_t e = 0; e < num_experts; ++e)
    sum += std::max(chosen(e) - capacity, std::int64_t{0});
  return sum;
}

ExpertCounts count_choices(runtime::Communicator const& ranks, std::span<std::int32_t const> experts,
                           std::int64_t num_choices, std::int64_t num_experts, bool needs_order) {
  ExpertCounts counts;
  counts.num_experts = num_experts;
  counts.total.assign(static_cast<std::size_t>(num_choices * num_experts), 0);
  for (std::int64_t choice = 0; choice < std::ssize(experts); ++choice)
    ++counts.total.at(static_cast<std::size_t>(choice % num_choices * num_experts +
                                               experts[static_cast<std::size_t>(choice)]));
  if (needs_order) {
    counts.before = counts.total;
    runtime::exclusive_scan(ranks, counts.before);
  }
  runtime::all_reduce(runtime::host, ranks, counts.total);
  return counts;
}

std::int64_t drop_beyond(std::int64_t capacity, ExpertCounts const& counts, std::span<std::int32_t> experts,
                         std::int64_t num_choices) {
  auto next = counts.before; // next slot of each (k, e)
  for (std::int64_t k = 1; k < num_choices; ++k)
    for (std::int64_t e = 0; e < counts.num_experts; ++e)
      for (std::int64_t earlier = 0; earlier < k; ++earlier)
        next[static_cast<std::size_t>(k * counts.num_experts + e)] +=
            counts.total[static_cast<std::size_t>(earlier * counts.num_experts + e)];
  std::int64_t num_dropped = 0;
  for (std::int64_t choice = 0; choice < std::ssize(experts); ++choice) {
    auto& expert = experts[static_cast<std::size_t>(choice)];
    auto& slot = next.at(static_cast<std::size_t>(choice % num_choices * counts.num_experts + expert));
    if (slot++ < capacity) continue;
    expert = -1;
    ++num_dropped;
  }
  return num_dropped;
}

} // namespace orthant::pmm
