// SPDX-License-Identifier: Apache-2.0
#include "models/experts/expert_placement.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace orthant::models {

std::vector<std::int64_t> balanced_places(std::span<std::int64_t const> loads, int num_ranks) {
  auto const num_experts = std::ssize(loads);
  ORTHANT_REQUIRE(num_experts % num_ranks == 0, num_experts, " experts on ", num_ranks, " ranks");
  auto const load_of = [&](std::int64_t expert) { return loads[static_cast<std::size_t>(expert)]; };
  std::vector<std::int64_t> order(loads.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, std::greater<>(), load_of);

  struct Rank {
    std::int64_t load = 0;
    std::vector<std::int64_t> experts;
  };
  auto const per_rank = num_experts / num_ranks;
  std::vector<Rank> ranks(static_cast<std::size_t>(num_ranks));
  for (auto const expert : order) {
    Rank* least = nullptr;
    for (auto& rank : ranks)
      if (std::ssize(rank.experts) < per_rank && (least == nullptr || rank.load < least->load)) least = &rank;
    least->load += load_of(expert);
    least->experts.push_back(expert);
  }

  std::vector<std::int64_t> places(loads.size());
  std::int64_t next = 0;
  for (auto& rank : ranks) {
    std::ranges::sort(rank.experts);
    for (auto const expert : rank.experts)
      places[static_cast<std::size_t>(expert)] = next++;
  }
  if (imbalance_of_ranks(loads, places, num_ranks) >= imbalance_of_ranks(loads, {}, num_ranks))
    std::iota(places.begin(), places.end(), std::int64_t{0});
  return places;
}

double imbalance_of_ranks(std::span<std::int64_t const> loads, std::span<std::int64_t const> places,
                          int num_ranks) {
  auto const per_rank = std::ssize(loads) / num_ranks;
  std::vector<std::int64_t> sums(static_cast<std::size_t>(num_ranks), 0);
  for (std::size_t e = 0; e < loads.size(); ++e) {
    auto const place = places.empty() ? static_cast<std::int64_t>(e) : places[e];
    sums[static_cast<std::size_t>(place / per_rank)] += loads[e];
  }
  auto const sum = std::reduce(sums.begin(), sums.end());
  if (sum == 0) return 1;
  return static_cast<double>(*std::ranges::max_element(sums)) * num_ranks / static_cast<double>(sum);
}

} // namespace orthant::models
